"""What a command takes from its start to its answer, in new processes: imports, the model and the
search.

The MB are all that a process held.
"""

import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from channelhash.models import HashModel
from channelhash.models.encoders import open_encoder
from channelhash.models.exported import export_onnx
from channelhash.models.fitted import FittedModel, fit_codes
from channelhash.search import open_store
from measure import clustered_codes, draw_texts, options, print_rows, small_text_model
from timing import Row

BITS = 64
# Runs a command, and prints its seconds (to its first line, or to its end) and the most kilobytes
# that it held. A process counts what its parent held when it was started; so a small one starts it.
LAUNCH = """
import resource, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
if sys.argv[1] == "line":
    failed = not process.stdout.readline()
    seconds = time.perf_counter() - began
    process.terminate()
    _, problem = process.communicate()
else:
    _, problem = process.communicate()
    seconds, failed = time.perf_counter() - began, process.returncode
if failed:
    sys.exit(problem)
print(seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def main() -> None:
    """Print rows of searches by a small model and by that of photographs, of a server and of
    imports.
    """
    given = options(__doc__, codes=100_000, repeats=5)
    size, rows = f"{given.codes:,} items, k = {BITS}", []
    with tempfile.TemporaryDirectory() as name:
        small, folder = Path(name) / "small", Path(name) / "photo"
        model = small_text_model(BITS)
        fill(small, model, given.codes)
        export_onnx(model, small / "exported", ["text"])
        search = command("search", small / "store", "red dog", "--json", "--model")
        exported, loaded = ([*search, str(small / which)] for which in ("exported", "model"))
        rows.append(
            row(
                "search by a text, small exported",
                size,
                exported,
                given.repeats,
                "its model",
                loaded,
            )
        )
        fill(folder, photo_model(), given.codes)
        search = command(
            "search", folder / "store", "red dog", "--json", "--model", folder / "model"
        )
        rows.append(row("search by a text, photo", size, search, given.repeats))
        words = command("search", folder / "store", "red dog", "--json", "--by", "words")
        rows.append(row("search by words alone", size, words, given.repeats))
        rows.append(
            row(
                "search by an item",
                size,
                command("search", folder / "store", "--like", "7"),
                given.repeats,
            )
        )
        serve = command("serve", folder / "store", "--model", folder / "model", "--port", "0")
        rows.append(row("serve until it listens", size, serve, given.repeats))
    losses, torch = (
        [sys.executable, "-c", f"import {name}"] for name in ("channelhash.losses", "torch")
    )
    print_rows(
        [*rows, row("import channelhash.losses", "", losses, given.repeats, "import torch", torch)]
    )


def photo_model() -> FittedModel:
    """Return codes fitted to what the encoder of photographs makes of texts."""
    encoder = open_encoder("photo-backbones")
    return fit_codes(
        encoder,
        {"text": encoder.features("text", draw_texts(200, "texts to fit codes to"))},
        BITS,
        "itq",
    )


def fill(folder: Path, model: HashModel | FittedModel, n: int) -> None:
    """Make a store of codes with texts, and save the model beside it."""
    model.save_pretrained(folder / "model")
    codes, texts = clustered_codes(n, BITS, max(1, n // 100)), draw_texts(n, "words of items")
    with closing(open_store(folder / "store", BITS, model.fingerprint())) as store:
        store.add(
            [str(i) for i in range(n)], {"text": codes}, metadata=[{"text": text} for text in texts]
        )


def command(*words: object) -> list[str]:
    """Return the command with these words."""
    return [sys.executable, "-m", "channelhash", *map(str, words)]


def row(
    what: str,
    size: str,
    ours: list[str],
    repeats: int,
    baseline: str = "",
    other: list[str] | None = None,
) -> Row:
    """Run both commands in turn after a warm-up each, and return the medians."""
    both = [ours] if other is None else [ours, other]
    runs = [[run(each) for each in both] for _ in range(repeats + 1)][1:]
    seconds = [statistics.median(turn[i][0] for turn in runs) for i in range(len(both))]
    peak = statistics.median(turn[0][1] for turn in runs)
    others, ratio = (seconds[1], seconds[1] / seconds[0]) if other else (None, None)
    return Row(
        what=what,
        size=size,
        seconds=seconds[0],
        baseline=baseline,
        baseline_seconds=others,
        ratio=ratio,
        peak_mb=peak,
    )


def run(words: list[str]) -> tuple[float, float]:
    """Return the seconds of a command, of a server until it listens, and the most memory that it
    held, in MB.
    """
    until = "line" if "serve" in words else "end"
    launched = [sys.executable, "-c", LAUNCH, until, *words]
    done = subprocess.run(launched, stdout=subprocess.PIPE, text=True, check=True)
    seconds, kilobytes = map(float, done.stdout.split())
    return seconds, kilobytes / 2**10


if __name__ == "__main__":
    main()
