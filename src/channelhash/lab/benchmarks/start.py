"""What a command costs from its start to its answer, in new processes: imports, the model and the search."""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from channelhash.errors import JobError
from channelhash.lab.benchmarks.serve import clustered_codes, small_text_model
from channelhash.models import HashModel
from channelhash.models.encoders import open_encoder
from channelhash.models.fitted import fit_codes
from channelhash.models.onnx_export import export_onnx
from channelhash.models.photo_encoder import missing_packages
from channelhash.search import open_store
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row

_N_BITS = 64
# Runs a command, and prints its seconds (to its first line, or to its end) and the most kilobytes that it held.
_LAUNCH = """
import resource, subprocess, sys, time
began = time.perf_counter()
process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
if sys.argv[1] == "line":
    said = process.stdout.readline()
    seconds = time.perf_counter() - began
    process.terminate()
    _, problem = process.communicate()
    failed = not said
else:
    _, problem = process.communicate()
    seconds, failed = time.perf_counter() - began, process.returncode
if failed:
    sys.exit(problem)
print(seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
_WORDS = ("red", "blue", "green", "dog", "cat", "sea", "house", "tree", "night", "people")


def benchmark_start(n_codes: int = 100_000, repeats: int = 5) -> list[Row]:
    """Measure searches and the start of a server, each in new processes; ``peak_mb`` is all that a process held.

    Args:
        n_codes: size of the store.
        repeats: processes of each kind; the median counts.

    Raises:
        JobError: a command fails.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder, rows = Path(temporary), list[Row]()
        for name, model in _models():
            store = _store(folder / name, model, n_codes)
            export_onnx(model, folder / name / "exported", ["text"])
            search = ["search", str(store), "red dog", "-k", "10", "--json"]
            size = f"{n_codes} items, k = {_N_BITS}"
            if not rows:
                rows.append(_row("search by words alone", size, _command(*search, "--by", "words"), repeats))
                rows.append(_row("search by an item", size, _command("search", str(store), "--like", "7"), repeats))
            exported = _command(*search, "--model", str(folder / name / "exported"))
            by_model = _command(*search, "--model", str(folder / name / "model"))
            rows.append(_row(f"search by a text, {name} exported", size, exported, repeats, "its model", by_model))
        serve = [*_command("serve"), str(store), "--model", str(folder / name / "model"), "--port", "0"]
        rows.append(_row("serve until it listens", size, serve, repeats))
        losses = [sys.executable, "-c", "import channelhash.losses"]
        torch = [sys.executable, "-c", "import torch"]
        return [*rows, _row("import channelhash.losses", "", losses, repeats, "import torch", torch)]


def _models() -> Iterator[tuple[str, HashModel]]:
    """Yield models of texts by name: a small one, and that of photographs where its packages are installed."""
    yield "small", small_text_model()
    if not missing_packages():
        encoder = open_encoder("photo-backbones")
        random = generator(0, "texts to fit codes to")
        texts = [" ".join(random.choice(_WORDS, 4)) for _ in range(200)]
        yield "photo", fit_codes(encoder, {"text": encoder.features("text", texts)}, _N_BITS, "itq")


def _store(folder: Path, model: HashModel, n_codes: int) -> Path:
    """Make a store of codes with texts, and save the model beside it; return the store's address."""
    model.save_pretrained(folder / "model")
    random = generator(0, "words of items")
    texts = [" ".join(random.choice(_WORDS, 3)) for _ in range(n_codes)]
    with closing(open_store(folder / "store", _N_BITS, model.fingerprint())) as store:
        ids = [str(row) for row in range(n_codes)]
        store.add(ids, {"text": clustered_codes(n_codes, _N_BITS)}, metadata=[{"text": text} for text in texts])
    return folder / "store"


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "channelhash", *words]


def _row(
    what: str, size: str, ours: Sequence[str], repeats: int, baseline: str = "", other: Sequence[str] | None = None
) -> Row:
    """Run both commands in turn after a warm-up each, and return the medians."""
    runs: dict[str, list[tuple[float, float]]] = {"ours": [], "other": []}
    for turn in range(repeats + 1):
        for name, command in (("ours", ours), ("other", other)):
            if command is not None:
                found = _run(command)
                runs[name] += [found] * (turn > 0)
    seconds = statistics.median(run[0] for run in runs["ours"])
    others = statistics.median(run[0] for run in runs["other"]) if other is not None else None
    ratio = None if others is None else others / seconds
    peak = statistics.median(run[1] for run in runs["ours"])
    return Row(
        what=what, size=size, seconds=seconds, baseline=baseline, baseline_seconds=others, ratio=ratio, peak_mb=peak
    )


def _run(command: Sequence[str]) -> tuple[float, float]:
    """Return the seconds of a command, of a server until it listens, and the most memory that it held, in MB."""
    until = "line" if "serve" in command else "end"
    # A process counts what its parent held when it was started; so a small one starts it.
    done = subprocess.run([sys.executable, "-c", _LAUNCH, until, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise JobError(f"{' '.join(command[2:])}: {done.stderr.strip()[-300:]}")
    seconds, kilobytes = map(float, done.stdout.split())
    return seconds, kilobytes / 2**10
