"""Look for prose that a native reader would not write, in the Markdown files of the repository:
``make docs``.

    python tools/site/prose.py [FILE.md …]

proselint's checks, and the phrases of ``vocabulary.yaml``. Code, links' targets and tables' rules
are not prose. Prints ``file:line: what is wrong`` and ends with 1 where something is.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml
from proselint.checks import __register__ as checks_of_proselint
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).parents[2]
VOCABULARY = Path(__file__).with_name("vocabulary.yaml")

#: Straight quotes and ``...`` are how one types in Markdown; "from 1,000" is taken for a range of
#: years.
_CHECKS = {**DEFAULT["checks"], "typography": False, "dates_times": False}

#: A word that stands twice is a slip; a symbol (``n n``) or a title with the sentence below it is
#: not.
_REPEATED = re.compile(r"\w\w[^\n]*")

#: Front matter, fenced blocks, comments, inline code, targets of links, addresses.
_NOT_PROSE = re.compile(
    r"\A---\n.*?^---$|^( "
    r"*)```.*?^\1```|<!--.*?-->|`[^`\n]+`|(?<=\])\([^)\n]*\)|https?://\S+|<[^>\n]+>",
    re.M | re.S,
)


CheckRegistry().register_many(checks_of_proselint)


class Finding(NamedTuple):
    """A place in a text, and what is wrong there."""

    line: int
    message: str


def prose_of(markdown: str) -> str:
    """Return a Markdown text with a sign in place of all that is not prose; lines and columns stay.

    >>> prose_of("Run `make it` now.")
    'Run ¤¤¤¤¤¤¤¤¤ now.'
    """
    return _NOT_PROSE.sub(lambda found: re.sub(r"[^\n]", "¤", found[0]), markdown)


def check_prose(markdown: str, vocabulary: Mapping[str, str]) -> list[Finding]:
    """Return the findings of proselint and of the vocabulary in a Markdown text, by line.

    >>> check_prose("Fine.\\n\\nRead this anew.", {"anew": "again"})
    [Finding(line=3, message="'anew': write again")]
    """
    prose = prose_of(markdown)
    found = [
        Finding(prose.count("\n", 0, place.start()) + 1, f"{place[0]!r}: write {advice}")
        for phrase, advice in vocabulary.items()
        for place in re.finditer(rf"\b(?:{phrase})\b", prose, re.I)
    ]
    linted = LintFile("text", prose)
    for result in linted.lint({"checks": _CHECKS, "max_errors": 1000}):
        check = result.check_result
        if check.check_path != "lexical_illusions" or _REPEATED.fullmatch(
            linted.content[slice(*check.span)]
        ):
            found.append(Finding(result.pos[0], f"{check.message} ({check.check_path})"))
    return sorted(found)


def markdown_files() -> list[Path]:
    """Return the Markdown files that git keeps, or would keep, but for the tests'."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", ":!tests"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def main(files: Iterable[Path]) -> int:
    """Print the findings in files; return how many there are."""
    vocabulary = yaml.safe_load(VOCABULARY.read_text(encoding="utf-8"))
    count = 0
    for path in files:
        for finding in check_prose(path.read_text(encoding="utf-8"), vocabulary):
            print(f"{path}:{finding.line}: {finding.message}")
            count += 1
    return count


if __name__ == "__main__":
    sys.exit(main([Path(name) for name in sys.argv[1:]] or markdown_files()) > 0)
