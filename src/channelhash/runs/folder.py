"""A run's folder: claimed by one configuration, locked while a job works in it, and described.

The record of where it was trained has versions, device and commit. It names no machine, person or
folder.
"""

import json
import logging
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter

from channelhash._version import __version__
from channelhash.config import RunConfig, read_run_config, read_sections
from channelhash.data.collection import Collection
from channelhash.data.records import Records, items_hash
from channelhash.data.splits import Splits
from channelhash.errors import InputError, argument
from channelhash.models import HashModel, load_hash_model
from channelhash.models.backbones import weights_source
from channelhash.training import distributed
from channelhash.training.validation import measure_of, read_log, selection_score
from channelhash.utils.decode import read_json, reading, split_lines
from channelhash.utils.files import sweep, write_text
from channelhash.utils.locks import locked_folder
from channelhash.utils.typed_settings import python_names, trusting

_log = logging.getLogger("channelhash.train")


@dataclass(frozen=True)
class Run:
    """A finished run. Functions that take its folder take the run itself, too.

    Attributes:
        folder: where everything that it has written is.
        epochs: number of epochs.
        loss: mean loss of the last epoch.
        validation: task -> score of the last validation, or of the best with ``train.keep: best``;
            empty without any.
        problems: a line for each row that was left out or repaired, and for each doubt about the
            collection.
        measure: what validation measures: ``map_tie_aware``, or ``recall_at_10`` without labels.

    >>> list(Run(Path("runs/a"), epochs=3, loss=0.5, validation={}, problems=()).as_dict())
    ['run', 'epochs', 'loss', 'validation', 'problems', 'measure']
    """

    folder: Path
    epochs: int
    loss: float
    validation: dict[str, float]
    problems: tuple[str, ...]
    measure: str = "map_tie_aware"

    def __fspath__(self) -> str:
        return str(self.folder)

    def load_model(self) -> HashModel:
        """Return the model after the last epoch. Code that the run was trained with is trusted."""
        with trusting(python_names(read_sections(self.folder / "config.yaml"))):
            return load_hash_model(self.folder)

    def as_dict(self) -> dict[str, Any]:
        """Return what ``channelhash train --json`` prints."""
        fields = dict(vars(self))
        return {"run": str(fields.pop("folder")), **fields, "problems": list(self.problems)}


class OpenedRun(NamedTuple):
    """A finished run with its model, on the device that it was trained on, and its data."""

    folder: Path
    config: RunConfig
    model: HashModel
    collection: Collection
    splits: Splits


def open_run(folder: Path, checkpoint: str = "last") -> OpenedRun:
    """Open a finished run with the model of the ``"last"`` epoch, or of the one ``"best"`` on
    validation.

    Raises:
        InputError: its data has changed since, see `check_contents`.
    """
    config = read_run_config(folder)
    collection = Collection.load(config.sources)
    check_contents(folder, config, collection)
    model = load_hash_model(folder / "checkpoints" / "best" if checkpoint == "best" else folder)
    splits = Splits.load(folder / "splits.json", collection.records)
    device = distributed.local_device(config.train.device)
    return OpenedRun(folder, config, model.to(device), collection, splits)


@contextmanager
def claim_folder(config: RunConfig, folder: Path, resume: bool) -> Iterator[bool]:
    """Lock a run's folder for a configuration, together with the other processes of a distributed
    training. Yield whether the run is still to be trained.
    """
    with (
        distributed.joined(distributed.local_device(config.train.device)),
        locked_folder(folder, "working in this folder")
        if distributed.launched_rank() == 0
        else nullcontext(),
    ):
        if distributed.rank() == 0:
            _claim(folder, config, resume)
        # The other processes wait here for the first.
        yield not distributed.from_first((folder / "model" / "config.json").exists())


def save_model(model: HashModel, config: RunConfig, folder: Path) -> None:
    """Save the trained model of a run, which finishes the run.

    The model card says what it was trained with. Of the data it names the kind alone, because paths
    are private.
    """
    if distributed.rank() == 0:
        sections = config.sections()
        train = dict(sections["train"])
        train.pop("device", None)
        train.pop("workers", None)
        settings = {
            "data": {"kind": config.kind},
            "model": {"name": config.model_name, "n_bits": config.n_bits},
            "loss": sections["loss"],
            "train": train,
        }
        model.save_pretrained(folder / "model", model_card_kwargs={"settings": settings})
    distributed.wait_for_all()


def read_run(folder: Path) -> Run:
    """Return the finished run in a folder."""
    log = read_log(folder / "log.jsonl")
    problems = (folder / "problems.txt").read_text(encoding="utf-8", errors="replace")
    keep = read_sections(folder / "config.yaml").get("train", {}).get("keep", "last")
    return Run(
        folder,
        len(log),
        log[-1]["loss"],
        _kept_validation(log, keep),
        tuple(split_lines(problems)),
        measure_of(log),
    )


def _kept_validation(log: Sequence[Mapping[str, Any]], keep: str) -> dict[str, float]:
    """Return the validation of the model that a training kept, ``last`` or ``best``; empty if there
    is none.

    >>> log = [{"validation": {"text->image": score}} for score in (0.25, 0.5, 0.375)]
    >>> _kept_validation(log, "last"), _kept_validation(log, "best")
    ({'text->image': 0.375}, {'text->image': 0.5})
    """
    validations: list[dict[str, float]] = [
        entry["validation"] for entry in log if "validation" in entry
    ]
    if not validations:
        return {}
    return max(validations, key=selection_score) if keep == "best" else validations[-1]


def keep_splits(
    folder: Path, records: Records, draw: Callable[[], Splits], settings: dict[str, Any]
) -> Splits:
    """Return the splits in a run's ``splits.json``. The first process draws them if they are
    missing.
    """
    path = folder / "splits.json"
    if distributed.rank() == 0 and not path.exists():
        draw().save(records, path, settings)
    distributed.wait_for_all()
    return Splits.load(path, records)


#: In a run's folder: hashes of everything that it is made from.
_CONTENTS = "data.json"


def keep_contents(folder: Path, config: RunConfig, collection: Collection) -> None:
    """Write what a new run is made from into its folder; check it in a resumed one."""
    is_new = not (folder / _CONTENTS).exists() and not _has_work(folder)
    if distributed.rank() == 0 and is_new:
        contents = {origin.name: origin.hashes for origin in _origins(config, collection)}
        write_text(folder / _CONTENTS, json.dumps(contents, indent=2))
    distributed.wait_for_all()
    check_contents(folder, config, collection)


def check_contents(folder: Path, config: RunConfig, collection: Collection | None = None) -> None:
    """Check that a run's data and files are still those that its ``data.json`` lists. A run of an
    older version has no such file, and passes.

    Args:
        folder: the run's folder.
        config: its configuration.
        collection: its data; loaded if None.

    Raises:
        InputError: they have changed; the message says which file, and what of it.
    """
    if not (folder / _CONTENTS).exists():
        return
    if collection is None:
        collection = Collection.load(config.sources)
    known = read_json(folder / _CONTENTS, "not what a run is made from", "train the run anew")
    differences = []
    for origin in _origins(config, collection):
        before = known.get(origin.name, {})
        names = dict.fromkeys((*origin.hashes, *before))
        changed = [name for name in names if origin.hashes.get(name) != before.get(name)]
        if changed:
            differences.append(f"{origin.place}: {', '.join(changed)}")
    if differences:
        raise InputError(
            f"{folder}: its data has changed since it was trained ({'; '.join(differences)}); put "
            f"the old data back, or train on the new into another {argument('out')}"
        )


class _Origin(NamedTuple):
    """A source or a file that a run is made from: its name in ``data.json``, its place, and the
    hashes of its content.
    """

    name: str
    place: object
    hashes: dict[str, str]


def _origins(config: RunConfig, collection: Collection) -> list[_Origin]:
    """Return everything that a run is made from, except missing files: their readers report
    them.
    """
    origins = []
    for number, source in enumerate(config.sources):
        place = source.arguments.get("path") or source.arguments.get("root") or source.kind
        origins.append(_Origin(f"data {number}", place, collection.parts[number].contents))
    settings = dict(vars(config.model))
    if "pretrained" in settings:
        settings["pretrained"] = weights_source(settings["pretrained"])[1]
    for key, value in settings.items():
        is_name = isinstance(value, str | Path) and Path(value).suffix != ""
        if is_name and Path(value).is_file():
            origins.append(_Origin(f"model.{key}", value, {"file": items_hash((Path(value),))}))
    return origins


def check_evaluable(records: Records, splits: Splits) -> None:
    """Check before a training that it can be evaluated: there are queries, items to search and rows
    to train on, and if there are labels, some query shares one with some item.

    Raises:
        InputError: one of them is missing.

    >>> import numpy as np
    >>> labels, none = np.ones((2, 1), dtype=bool), np.array([], np.int64)
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, labels, ("dog",))
    >>> check_evaluable(records, Splits(np.array([0]), np.array([1]), np.array([1]), none, none))
    """
    for name in ("query", "retrieval"):
        if not len(getattr(splits, name)):
            raise InputError(
                f"data: the {name} partition is empty, so that nothing could be evaluated; set "
                "data.queries to 1 or more, and to fewer than there are rows"
            )
    if not len(splits.train):
        raise InputError("data.train: there are no training rows; set it to 1 or more")
    in_queries = records.labels[splits.query].any(axis=0)
    in_items = records.labels[splits.retrieval].any(axis=0)
    if records.label_names and not (in_queries & in_items).any():
        raise InputError(
            "data: no query shares a label with an item of the retrieval set, so that nothing "
            "could be evaluated; give more labelled rows, or other data.queries"
        )


def describe_run(config: RunConfig, folder: Path, problems: Sequence[str]) -> None:
    """Write ``problems.txt`` and ``environment.json``, and warn of problems before the
    training.
    """
    if distributed.rank() == 0:
        file = folder / "problems.txt"
        write_text(file, "".join(f"{line}\n" for line in problems))
        if problems:  # the last ones are about the whole collection
            _log.warning(
                "problems of the data: %d, listed in %s; the last is: %s",
                len(problems),
                file,
                problems[-1],
            )
        device = distributed.local_device(config.train.device)
        _record_environment(folder / "environment.json", device, distributed.world_size())


#: What a run's folder holds as soon as something was trained or encoded there.
_WORK = ("log.jsonl", "checkpoints", "codes", "model")


def _claim(folder: Path, config: RunConfig, resume: bool) -> None:
    """Claim a folder for a configuration: write ``config.yaml`` into it.

    A run that failed before any work was done, because its data could not be read, say, is begun
    anew: its splits and hashes are dropped. A resumed run must have the same configuration.
    """
    path = folder / "config.yaml"
    sweep(folder)
    if not path.exists():
        if any(entry.name != ".lock" for entry in folder.iterdir()):
            raise InputError(
                f"{folder}: is not empty and not a run's folder; choose another {argument('out')}"
            )
        write_text(path, config.to_yaml())
    elif not resume and not _has_work(folder):
        for name in ("splits.json", _CONTENTS):
            (folder / name).unlink(missing_ok=True)
        write_text(path, config.to_yaml())
    elif not resume:
        raise InputError(
            f"{folder}: already holds a run; add {argument('resume')} to go on with it, or choose "
            f"another {argument('out')}"
        )
    else:
        _check_same(path, read_run_config(folder), config)


def _check_same(path: Path, before: RunConfig, config: RunConfig) -> None:
    """Check that a resumed run has the configuration that it was begun with."""
    old = before.to_yaml().splitlines()
    new = config.to_yaml().splitlines()
    if old != new:
        changed = [line.strip() for line in new if line not in old]
        difference = "; ".join(changed[:3]) or "keys were left out"
        raise InputError(
            f"{path}: has another configuration ({difference}); choose another {argument('out')}"
        )


def _has_work(folder: Path) -> bool:
    return any((folder / name).exists() for name in _WORK)


#: Packages whose versions can change codes or scores.
_PACKAGES = (
    "torch",
    "torchvision",
    "numpy",
    "numba",
    "scipy",
    "pillow",
    "open_clip_torch",
    "timm",
    "symspellpy",
    "h5py",
    "pyarrow",
    "onnxruntime",
    "sentence-transformers",
)


def _environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Describe the environment of this process."""
    return {
        **_versions(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes,
    }


@cache  # what this process has imported does not change with the files
def _versions() -> dict[str, Any]:
    packages = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "channelhash": __version__,
        "git_commit": _git_commit(Path(__file__)),
        "packages": packages,
    }


def _git_commit(file: Path) -> str | None:
    """Return the commit of the checkout in which ``file`` is tracked; None without one, or without
    git.

    An installed package may lie in a folder of a checkout (its ``.venv``), where the file is not
    tracked.

    >>> _git_commit(Path("nowhere", "file.py")) is None
    True
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    return _git(file.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _record_environment(path: Path, device: torch.device, processes: int) -> None:
    """Append the environment of this process to the JSON list in ``path`` if it differs from the
    last one.

    An interrupted run may continue on another machine.
    """
    entries = read_environments(path)
    entry = _environment(device, processes)
    if not entries or entries[-1] != entry:
        write_text(path, json.dumps([*entries, entry], indent=2) + "\n")


def read_environments(path: Path) -> list[dict[str, Any]]:
    """Read what `_record_environment` wrote, oldest first; an empty list if there is no such file.

    >>> read_environments(Path("nowhere", "environment.json"))
    []
    """
    if not path.exists():
        return []
    with reading(path, "not a list of environments", "remove it, it is only for reports"):
        return TypeAdapter(list[dict[str, Any]]).validate_json(path.read_bytes())


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, stripped; None if git fails or is missing."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
