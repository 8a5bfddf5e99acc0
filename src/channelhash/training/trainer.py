"""The training loop of the paper (``protocol.md`` § 6)."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from channelhash.config import TrainSettings
from channelhash.errors import JobError
from channelhash.models.backbones import memory_advice
from channelhash.models.hash_model import HashModel
from channelhash.training.batches import check_batch_size
from channelhash.training.checkpoints import load_checkpoint, save_checkpoint
from channelhash.training.distributed import from_first, local_device, rank
from channelhash.training.schedule import learning_rate
from channelhash.training.sources import Source
from channelhash.training.step import Steps
from channelhash.utils.device import pick_device
from channelhash.utils.files import write_text
from channelhash.utils.progress import Progress
from channelhash.utils.seeds import derive_seed

#: Figures of one validation: task name -> tie-aware mAP.
Validation = dict[str, float]


def train(
    model: HashModel,
    loss: nn.Module,
    sources: Mapping[str, Source],
    labels: Tensor,
    settings: TrainSettings,
    folder: Path,
    validate: Callable[[HashModel], Validation] | None = None,
    progress: Progress | None = None,
    resume: bool = False,
) -> list[dict[str, Any]]:
    """Train ``model`` in place and write ``log.jsonl``, ``checkpoints/`` and TensorBoard events into ``folder``.

    Of several processes (see `distributed`) each takes its share of every batch; the first one validates and writes.

    Args:
        model: its branches' modalities are the keys of ``sources``.
        loss: called as ``loss(outputs, labels)``, or with ``anchor=modality`` if its ``forward`` takes one.
        sources: modality -> where the inputs of ``n`` rows come from.
        labels: ``(n, c)`` bool; or whatever else ``loss`` compares the outputs of those rows with.
        settings: see `TrainSettings`.
        folder: the run's folder.
        validate: called every ``validate_every`` epochs; the epoch best by mean of image->text and text->image is
            kept in ``checkpoints/best``.
        progress: called with (finished epochs, epochs).
        resume: go on from ``checkpoints/last.pt`` if it is there. The final weights are those of an uninterrupted
            training, bit by bit on a CPU: every draw is a function of (seed, epoch).

    Returns:
        The log, one dictionary an epoch; shorter than ``typed_settings.epochs`` where ``patience`` ended the training.

    Raises:
        JobError: the loss became NaN or infinite (the checkpoint before that epoch is kept), or memory ran out.
    """
    check_batch_size(len(labels), settings.batch_size)
    device = local_device(pick_device(settings.device))
    model.to(device).train()
    steps = Steps(model, loss, labels, settings, device)
    last, log_file = folder / "checkpoints" / "last.pt", folder / "log.jsonl"
    start = load_checkpoint(last, model, steps.loss, steps.optimizer) if resume and last.exists() else 0
    log = read_log(log_file)[:start]
    first = rank() == 0

    advice = (
        f"with train.batch_size {settings.batch_size}; lower it (train.accumulate keeps the samples of a step), or "
        "give more processes, each of which takes its share of the batch"
    )
    with _tensorboard(folder / "tensorboard", start) if first else nullcontext() as writer, memory_advice(advice):
        for epoch in range(start, settings.epochs):
            if _waited_long_enough(log, settings.patience):
                break
            began = time.perf_counter()
            rate = learning_rate(epoch, settings.epochs, settings.learning_rate)
            for group in steps.optimizer.param_groups:
                group["lr"] = rate
            names = ("dropout", epoch) if first else ("dropout", epoch, rank())
            torch.manual_seed(derive_seed(settings.seed, *names))
            losses = steps.run(steps.batches(sources, epoch))
            if not losses.isfinite().all():
                bad = int((~losses.isfinite()).nonzero()[0])
                raise JobError(
                    f"epoch {epoch}, step {bad}: the loss is {losses[bad].item()}; lower train.learning_rate "
                    f"(now {rate:g}); the last good checkpoint is {last if last.exists() else 'none yet'}"
                )
            entry: dict[str, Any] = {"epoch": epoch, "loss": losses.mean().item(), "learning_rate": rate}
            done = epoch + 1
            due = settings.validate_every and (done % settings.validate_every == 0 or done == settings.epochs)
            if validate and due:
                entry["validation"] = from_first(validate(model) if first else None)
                if first and selection_score(entry["validation"]) > max(_scores(log), default=-math.inf):
                    model.save_pretrained(folder / "checkpoints" / "best")
            entry["seconds"] = round(time.perf_counter() - began, 3)
            log.append(entry)
            if first:
                _write_log(log_file, log)
                _write_events(writer, entry)
                stops = done == settings.epochs or _waited_long_enough(log, settings.patience)
                if done % settings.checkpoint_every == 0 or stops:
                    save_checkpoint(last, model, steps.loss, steps.optimizer, done)
            if progress:
                progress(done, settings.epochs)
    model.eval()
    return log


def selection_score(validation: Validation) -> float:
    """The figure that picks the best epoch: mean of image->text and text->image, or of all tasks without those."""
    cross = [validation[task] for task in ("image->text", "text->image") if task in validation]
    values = cross or list(validation.values())
    return sum(values) / len(values)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of ``log.jsonl``; an empty list if there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _scores(log: list[dict[str, Any]]) -> list[float]:
    return [selection_score(entry["validation"]) for entry in log if "validation" in entry]


def _waited_long_enough(log: list[dict[str, Any]], patience: int) -> bool:
    """Whether the last ``patience`` validations brought none better than the best before them."""
    scores = _scores(log)
    return 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience])


@contextmanager
def _tensorboard(folder: Path, start: int) -> Iterator[Any]:
    from torch.utils.tensorboard import SummaryWriter  # a second of import that only training pays

    writer = SummaryWriter(str(folder), purge_step=start)
    try:
        yield writer
    finally:
        writer.close()


def _write_log(path: Path, log: list[dict[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(entry) + "\n" for entry in log))


def _write_events(writer: Any, entry: dict[str, Any]) -> None:
    writer.add_scalar("loss", entry["loss"], entry["epoch"])
    writer.add_scalar("learning_rate", entry["learning_rate"], entry["epoch"])
    for task, value in entry.get("validation", {}).items():
        writer.add_scalar(f"validation map_tie_aware/{task}", value, entry["epoch"])
