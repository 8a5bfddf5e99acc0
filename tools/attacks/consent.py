"""Give folders that name code of this machine to every command and function that reads a run, a model or a store.

Usage: ``python tools/attacks/consent.py``. The forged folders are whole: with consent the code runs. It leaves
a mark when it is imported or called. Without consent a case is *refused* (no mark, and one line names the code), *left*
(no mark, and the job goes on without that code), or the code *ran*; with consent it *ran*, was *needless*, or the job
*fails*.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pyarrow import parquet, table

import channelhash as ch
from channelhash.cli.main import main
from channelhash.errors import InputError

MODULE = "forged_code"
_CODE = """
from pathlib import Path
Path("mark").touch()

import numpy as np
from channelhash.data import DATA_KINDS
from channelhash.losses import LOSSES
from channelhash.models import MODELS

MODEL, LOSS, DATA = MODELS["features"], LOSSES["dsch"], DATA_KINDS["features"]

def text(items):
    Path("mark").touch()
    return np.ones((len(items), 12))
"""
#: Kind -> the name that is forged, and the keys of a run's configuration that it takes the place of.
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "model": (f"python:{MODULE}:MODEL", ("model", "name")),
    "extractor": (f"python:{MODULE}:text", ("model", "extractors", "text")),
    "loss": (f"python:{MODULE}:LOSS", ("loss", "name")),
    "data": (f"python:{MODULE}:DATA", ("data", "kind")),
}
_OF_MODEL = ("model", "extractor")
_TRAIN = {"epochs": 1, "batch_size": 20, "learning_rate": 1e-3, "validate_every": 1, "device": "cpu", "workers": 0}


def write_sources(place: Path) -> None:
    """Write the features, the configuration, an honest run and its store that all cases start from."""
    random = np.random.default_rng(0)
    labels = random.random((80, 4)) < 0.4
    labels[~labels.any(axis=1), 0] = True
    for name, prefix in (("f", "i"), ("new", "n")):
        items = {modality: random.normal(size=(80, 12)).astype(np.float32) for modality in ("image", "text")}
        np.savez(place / f"{name}.npz", labels=labels, id=np.array([f"{prefix}{i:03}" for i in range(80)]), **items)
    sections = {
        "data": {"kind": "features", "path": str(place / "f.npz"), "queries": 10, "train": 40},
        "model": {"name": "features", "n_bits": 8, "hidden": [8]},
        "loss": {"name": "dsch"},
        "train": _TRAIN,
    }
    (place / "plain.yaml").write_text(yaml.safe_dump(sections))
    run = place / "honest"
    ch.train(place / "plain.yaml", out=run)
    ch.evaluate(run)
    shutil.copytree(run / "model", run / "checkpoints" / "best", dirs_exist_ok=True)
    ch.index(place / "f.npz", place / "honest.store", model=run).store.close()


def _put(values: dict[str, Any], keys: tuple[str, ...], name: str) -> None:
    for key in keys[:-1]:
        values[key] = values.get(key) or {}
        values = values[key]
    values[keys[-1]] = name


def _forge_model(folder: Path, kind: str, name: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    _put(config, ("name",) if kind == "model" else ("architecture", "extractors", "text"), name)
    config.pop("checksum", None)  # as whoever changes the file can
    (folder / "config.json").write_text(json.dumps(config))


def forge(place: Path, kind: str, folder: Path) -> Path:
    """Copy the honest run and its store to ``folder``, with a name of code in each; return the run's folder."""
    name, keys = KINDS[kind]
    run, store = folder / "run", folder / "run.store"
    shutil.copytree(place / "honest", run)
    shutil.copytree(place / "honest.store", store)
    sections = yaml.safe_load((run / "config.yaml").read_text())
    _put(sections, keys, name)
    (run / "config.yaml").write_text(yaml.safe_dump(sections))
    if kind in _OF_MODEL:
        for model in (run / "model", run / "checkpoints" / "best", store / "model"):
            _forge_model(model, kind, name)
    return run


@contextlib.contextmanager
def forged_code() -> Iterator[None]:
    """Put the module on this process's path, not imported yet; afterwards, forget it and its mark."""
    Path(f"{MODULE}.py").write_text(_CODE)
    sys.modules.pop(MODULE, None)
    try:
        yield
    finally:
        sys.modules.pop(MODULE, None)
        Path("mark").unlink(missing_ok=True)


def _command(*arguments: object) -> Callable[[Path, Path, bool], None]:
    """Return a case that runs a command; words in capitals stand for files."""

    def run(place: Path, run: Path, consent: bool) -> None:
        files = {"RUN": run, "STORE": run.with_suffix(".store"), "DATA": place / "f.npz", "NEW": place / "new.npz"}
        files |= {"OUT": run.with_name("out"), "PLAIN": place / "plain.yaml", "BEST": run / "checkpoints" / "best"}
        extending = yaml.safe_load((place / "plain.yaml").read_text())
        extending["data"]["path"] = str(place / "new.npz")
        files["EXTENDING"] = run.with_name("extending.yaml")
        files["EXTENDING"].write_text(yaml.safe_dump(extending | {"extend": {"run": str(run)}}))
        files["TABLE"] = run.with_name("items.parquet")
        parquet.write_table(table({"id": ["1", "2"], "text": ["a dog", "the sea"]}), files["TABLE"])
        files["GRID"] = run.with_name("grid")
        shutil.copytree(run, files["GRID"] / "runs" / "dsch-k8-seed0")
        words = [str(files.get(str(word), word)) for word in arguments]
        before, sys.argv = sys.argv, ["channelhash", *words, *["--trust-code"] * consent]
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                main()
        except SystemExit as stop:
            if stop.code:
                raise InputError(errors.getvalue().strip().splitlines()[-1]) from None
        finally:
            sys.argv = before

    return run


def _call(function: Callable[..., Any]) -> Callable[[Path, Path, bool], None]:
    """Return a case that calls ``function(place, run, **consent)``."""

    def run(place: Path, run: Path, consent: bool) -> None:
        function(place, run, **{"trust_code": True} if consent else {})

    return run


def _index(place: Path, run: Path, **consent: bool) -> None:
    ch.index(place / "f.npz", run.with_name("new.store"), model=run, **consent).search("a dog")


def _search(place: Path, run: Path, **consent: bool) -> None:
    from channelhash.search.query import encode_queries, load_encoder

    with contextlib.closing(ch.open_store(run.with_suffix(".store"))) as store:
        encode_queries(load_encoder(store, **consent), "text", ["a dog"])


def _serve(place: Path, run: Path, **consent: bool) -> None:
    """As the command does, without a socket."""
    from channelhash.serve.factory import open_app
    from channelhash.serve.limits import Limits

    with _trusting(**consent):
        open_app(str(run.with_suffix(".store")), None, Limits(), None, None).state.service.encoding.result()


def _trusting(trust_code: bool = False) -> contextlib.AbstractContextManager[None]:
    from channelhash.utils import python_names

    trusting = getattr(python_names, "trusting", None)  # a former version has none
    return trusting(trust_code) if trusting else contextlib.nullcontext()


def _encode(load: Callable[..., ch.HashModel]) -> Callable[..., None]:
    return lambda place, run, **consent: load(run / "model", **consent).encode_texts(["a dog"])


_PAIR = ("--text", "a dog", "--text", "the sea")
_ALL = tuple(KINDS)
#: Entry -> the kinds of names that it meets, and the case; those of `SLOW` train or compile.
ENTRIES: dict[str, tuple[tuple[str, ...], Callable[[Path, Path, bool], None]]] = {
    "evaluate": (_ALL, _command("evaluate", "RUN")),
    "evaluate best": (_ALL, _command("evaluate", "RUN", "--checkpoint", "best")),
    "report": (_ALL, _command("report", "RUN")),
    "search RUN": (_OF_MODEL, _command("search", "RUN", "--text", "a dog")),
    "search STORE": (_OF_MODEL, _command("search", "STORE", "--text", "a dog")),
    "search --model": (_OF_MODEL, _command("search", "STORE", "--text", "a dog", "--model", "BEST")),
    "explain RUN": (_OF_MODEL, _command("explain", "RUN", *_PAIR, "--no-maps")),
    "explain STORE": (_OF_MODEL, _command("explain", "STORE", *_PAIR, "--no-maps")),
    "encode file": (_OF_MODEL, _command("encode", "RUN", "--data", "DATA", "--out", "codes.parquet")),
    "encode shards": (_OF_MODEL, _command("encode", "RUN", "--data", "TABLE", "--out", "OUT")),
    "index create": (_OF_MODEL, _command("index", "create", "OUT", "DATA", "--model", "RUN")),
    "index add": (_OF_MODEL, _command("index", "add", "STORE", "NEW")),
    "train --resume": (_ALL, _command("train", "PLAIN", "--out", "RUN", "--resume")),
    "experiment": (
        _ALL,
        _command(
            "experiment", "losses", "--config", "PLAIN", "--bits", 8, "--seeds", 1, "--losses", "dsch", "--out", "GRID"
        ),
    ),
    "load_model": (_OF_MODEL, _call(_encode(ch.load_model))),
    "from_pretrained": (_OF_MODEL, _call(_encode(ch.HashModel.from_pretrained))),
    "ch.evaluate": (_ALL, _call(lambda place, run, **consent: ch.evaluate(run, **consent))),
    "ch.index": (_OF_MODEL, _call(_index)),
    "ch.explain": (
        _OF_MODEL,
        _call(lambda place, run, **consent: ch.explain(run, texts=["a", "b"], settings=None, **consent)),
    ),
    "load_encoder": (_OF_MODEL, _call(_search)),
    "serve": (_OF_MODEL, _call(_serve)),
    "extend": (_ALL, _command("extend", "RUN", "--data", "NEW", "--out", "OUT")),
    "train, extending": (("model", "data"), _command("train", "EXTENDING", "--out", "OUT")),
    "distill": (_ALL, _command("distill", "RUN", "--student", "features", "--out", "OUT")),
    "export": (_OF_MODEL, _command("export", "RUN", "--onnx", "--out", "OUT")),
}
#: Entries that read only files of what was asked for, in whose folders other names are never trusted.
NEVER = ("experiment", "train --resume")
#: Entries whose command trains, writes ONNX or does much else when it may.
SLOW = ("extend", "train, extending", "distill", "export")


def try_case(place: Path, kind: str, entry: str, consent: bool) -> str:
    """Run one case in a new folder below ``place``; return its outcome."""
    with tempfile.TemporaryDirectory(dir=place) as folder, contextlib.chdir(folder):
        run, message = forge(place, kind, Path(folder)), ""
        with forged_code():
            try:
                ENTRIES[entry][1](place, run, consent)
            except (InputError, TypeError) as error:  # TypeError: a version without the argument
                message = str(error)
            if Path("mark").exists():
                return "ran"
        if consent:
            return f"fails: {message}" if message else "needless"
        refused = KINDS[kind][0] in message and "\n" not in message
        return "refused" if refused else f"left{message and ': '}{message}"


def cases(entries: tuple[str, ...] = tuple(ENTRIES)) -> list[tuple[str, str]]:
    """Return every (kind, entry)."""
    return [(kind, entry) for entry in entries for kind in ENTRIES[entry][0]]


def _main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        with contextlib.chdir(place):
            write_sources(place)
        for kind, entry in cases():
            tried = (False,) if entry in NEVER else (False, True)
            outcomes = {consent: try_case(place, kind, entry, consent) for consent in tried}
            print(f"{entry:18} {kind:10} {outcomes[False]:30} with consent: {outcomes.get(True, '-')}", flush=True)
            for consent, outcome in outcomes.items():
                counts[consent][outcome.partition(":")[0]] += 1
    print(json.dumps({"cases": len(cases()), "without_consent": counts[False], "with_consent": counts[True]}))


if __name__ == "__main__":
    os.environ.setdefault("CHANNELHASH_CACHE", tempfile.gettempdir())
    sys.path.append("")
    _main()
