"""Print the table of `make coverage`: the share of each package's lines that the tests run.

python tools/coverage_table.py build/coverage.json
"""

import json
import sys
from collections import Counter
from pathlib import Path, PurePosixPath


def table(report: dict) -> list[str]:
    """Return the lines of a Markdown table, a row for each unit below ``channelhash``."""
    run, all_ = Counter[str](), Counter[str]()
    for file, found in report["files"].items():
        parts = PurePosixPath(file).parts
        unit = parts[parts.index("channelhash") + 1]
        run[unit] += found["summary"]["covered_lines"]
        all_[unit] += found["summary"]["num_statements"]
    rows = [f"| `{unit}` | {all_[unit]:,} | {run[unit] / max(1, all_[unit]):.1%} |" for unit in sorted(all_)]
    return [
        "| package | statements | run |",
        "|---|---|---|",
        *rows,
        f"| all | {all_.total():,} | {run.total() / all_.total():.1%} |",
    ]


if __name__ == "__main__":
    print(*table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), sep="\n")
