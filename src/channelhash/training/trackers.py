"""Where the curves of a training go beside ``log.jsonl``: TensorBoard, MLflow, or Weights & Biases."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from channelhash.errors import InputError
from channelhash.utils.files import space_for, write_text

#: Called with the scalars of an epoch, by name, and its number.
Track = Callable[[Mapping[str, float], int], None]


@contextmanager
def _tensorboard(folder: Path, start: int) -> Iterator[Track]:
    """Write event files into ``folder/tensorboard``."""
    from torch.utils.tensorboard import SummaryWriter  # a second of import that only training pays

    events_folder = folder / "tensorboard"
    with space_for(events_folder):
        events = SummaryWriter(str(events_folder), purge_step=start)

    def track(scalars: Mapping[str, float], epoch: int) -> None:
        with space_for(events_folder):
            for name, value in scalars.items():
                events.add_scalar(name, value, epoch)

    try:
        yield track
    finally:
        with space_for(events_folder):
            events.close()


@contextmanager
def _mlflow(folder: Path, start: int) -> Iterator[Track]:
    """Log to the server or folder, and the experiment, that MLflow's environment variables name."""
    mlflow, known = _library("mlflow"), folder / "mlflow.txt"
    again = {"run_id": known.read_text(encoding="utf-8")} if known.exists() else {"run_name": folder.name}
    with _open("mlflow", lambda: mlflow.start_run(**again)) as run:
        write_text(known, run.info.run_id)
        yield lambda scalars, epoch: mlflow.log_metrics(
            {name.replace(">", ""): value for name, value in scalars.items()}, step=epoch
        )


@contextmanager
def _wandb(folder: Path, start: int) -> Iterator[Track]:
    """Log to the project that Weights & Biases' environment variables name, else to ``channelhash``."""
    wandb, known = _library("wandb"), folder / "wandb.txt"
    settings: dict[str, Any] = {"name": folder.name, "dir": str(folder), "resume": "allow"}
    if known.exists():
        settings["id"] = known.read_text(encoding="utf-8")
    settings["project"] = wandb.Settings().project or "channelhash"
    with _open("wandb", lambda: wandb.init(**settings)) as run:
        write_text(known, run.id)
        yield lambda scalars, epoch: run.log(dict(scalars), step=epoch)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"train.tracker: {name} cannot be imported ({error}); pip install {name}, or take tensorboard"
        ) from error


def _open(name: str, start: Callable[[], Any]) -> Any:
    """Start a run of a library, whose own errors say what is wrong with its server or account."""
    try:
        return start()
    except Exception as error:  # each library has its own, and those of HTTP
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"train.tracker: {name} does not start a run: {reason}") from error


#: ``train.tracker`` -> opens the tracker of a run's folder, whose training begins or goes on with an epoch.
TRACKERS: dict[str, Callable[[Path, int], AbstractContextManager[Track]]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
    "wandb": _wandb,
}
