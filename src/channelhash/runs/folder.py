"""A run's folder: held while a job works in it, claimed by one configuration, and described."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import yaml

from channelhash.config import RunConfig, read_config
from channelhash.data.records import Records
from channelhash.data.splits import Splits, load_splits, save_splits
from channelhash.errors import InputError
from channelhash.models import HashModel
from channelhash.training.distributed import (
    from_first,
    joined,
    launched_rank,
    local_device,
    rank,
    wait_for_all,
    world_size,
)
from channelhash.training.trainer import read_log
from channelhash.utils.device import pick_device
from channelhash.utils.environment import environment, record_environment
from channelhash.utils.files import locked, remove_leftovers, write_text


def carry_out(config: RunConfig, folder: Path, resume: bool, job: Callable[[], HashModel]) -> dict[str, Any]:
    """Hold and claim a run's folder for ``config``, and unless the run is finished do ``job`` there and save the model
    that it trains as the run's; returns and raises as `train.start_run`."""
    with (
        joined(local_device(pick_device(config.train.device))),
        _lock(folder) if launched_rank() == 0 else nullcontext(),
    ):
        if rank() == 0:
            _claim(folder, config, resume)
        wait_for_all()
        if not from_first((folder / "model" / "config.json").exists()):
            model = job()
            if rank() == 0:
                model.save_pretrained(folder / "model", model_card_kwargs=_card_facts(config, folder))
            wait_for_all()
    log = read_log(folder / "log.jsonl")
    validations = [entry["validation"] for entry in log if "validation" in entry]
    return {
        "run": str(folder),
        "epochs": len(log),
        "loss": log[-1]["loss"],
        "validation": validations[-1] if validations else {},
        "problems": (folder / "problems.txt").read_text(encoding="utf-8").splitlines(),
    }


def keep_splits(
    folder: Path, records: Records, make: Callable[[], Splits], settings: dict[str, Any], resume: bool
) -> Splits:
    """The partitions in a run's ``splits.json``: written there by the first process, or to ``resume`` with as they are.

    Args:
        folder: a run's folder.
        records: what is parted.
        make: makes the partitions.
        settings: how they are made, kept in the file.
        resume: take those that are there.
    """
    path = folder / "splits.json"
    if rank() == 0 and not (resume and path.exists()):
        save_splits(make(), records, path, settings)
    wait_for_all()
    return load_splits(path, records)


def describe_run(config: RunConfig, folder: Path, problems: Sequence[str]) -> None:
    """Write ``problems.txt`` and ``environment.json``."""
    if rank() == 0:
        write_text(folder / "problems.txt", "".join(f"{line}\n" for line in problems))
        device = local_device(pick_device(config.train.device))
        record_environment(folder / "environment.json", environment(device, world_size()))


def _card_facts(config: RunConfig, folder: Path) -> dict[str, Any]:
    """What a model's card says of its training; of the data its kind alone, as paths are nobody else's business."""
    written = yaml.safe_load(config.to_yaml())
    hidden = {"device", "workers"}
    settings = {
        "data": {"kind": config.kind},
        "model": {"name": config.model_name, "n_bits": config.n_bits},
        "loss": written["loss"],
        "train": {key: value for key, value in written["train"].items() if key not in hidden},
    }
    log = read_log(folder / "log.jsonl")
    validation = log[-1].get("validation") if log else None
    return {"settings": settings, "epochs": len(log), "validation": validation}


#: What is in a run's folder as soon as something was trained or encoded there.
_WORK = ("log.jsonl", "checkpoints", "codes", "model")


def _claim(folder: Path, config: RunConfig, resume: bool) -> None:
    """Write ``config.yaml`` into a new folder, or into one that a run left before any work was done there (its data
    could not be read, say); or check that a run to resume is the same one."""
    path = folder / "config.yaml"
    remove_leftovers(path)
    if not path.exists():
        if any(entry.name != ".lock" for entry in folder.iterdir()):
            raise InputError(f"{folder}: is not empty and not a run's folder; choose another --out")
        write_text(path, config.to_yaml())
    elif not resume and not any((folder / name).exists() for name in _WORK):
        write_text(path, config.to_yaml())
    elif not resume:
        raise InputError(f"{folder}: already holds a run; add --resume to go on with it, or choose another --out")
    elif (before := read_config(path).to_yaml()) != config.to_yaml():  # an older version knew fewer keys
        raise InputError(
            f"{path}: was made with another configuration ({_difference(before, config)}); choose another --out"
        )


def _difference(before: str, config: RunConfig) -> str:
    old, new = before.splitlines(), config.to_yaml().splitlines()
    changed = [line.strip() for line in new if line not in old]
    return "; ".join(changed[:3]) or "keys were left out"


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a run's folder."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / ".lock", wait=False))
        except BlockingIOError:
            raise InputError(f"{folder}: another process is working in this folder; wait for it to end") from None
        yield
