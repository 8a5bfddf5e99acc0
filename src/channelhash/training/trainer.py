"""The training loop of the paper (``protocol.md`` § 6)."""

import inspect
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from channelhash.config import TrainSettings
from channelhash.errors import JobError
from channelhash.files import write_text
from channelhash.models.hash_model import HashModel, Progress
from channelhash.seeds import derive_seed
from channelhash.training.augmented_batches import batch_inputs
from channelhash.training.batches import check_batch_size, epoch_batches
from channelhash.training.checkpoints import load_checkpoint, save_checkpoint
from channelhash.training.schedule import learning_rate

#: Figures of one validation: task name -> tie-aware mAP.
Validation = dict[str, float]


def train(
    model: HashModel,
    loss: nn.Module,
    inputs: dict[str, Tensor],
    labels: Tensor,
    settings: TrainSettings,
    folder: Path,
    validate: Callable[[HashModel], Validation] | None = None,
    progress: Progress | None = None,
    resume: bool = False,
) -> list[dict[str, Any]]:
    """Train ``model`` in place and write ``log.jsonl``, ``checkpoints/`` and TensorBoard events into ``folder``.

    Args:
        model: its branches' modalities are the keys of ``inputs``.
        loss: called as ``loss(outputs, labels)``, or with ``anchor=modality`` if its ``forward`` takes one.
        inputs: modality -> prepared inputs of ``n`` rows.
        labels: ``(n, c)`` bool.
        settings: see `TrainSettings`.
        folder: the run's folder.
        validate: called every ``validate_every`` epochs; the epoch best by mean of image->text and text->image is
            kept in ``checkpoints/best``.
        progress: called with (finished epochs, epochs).
        resume: go on from ``checkpoints/last.pt`` if it is there. The final weights are those of an uninterrupted
            training, bit by bit on a CPU: every draw is a function of (seed, epoch).

    Returns:
        The log, one dictionary an epoch.

    Raises:
        JobError: the loss became NaN or infinite; the checkpoint before that epoch is kept.
    """
    n = len(labels)
    check_batch_size(n, settings.batch_size)
    device = pick_device(settings.device)
    model.to(device).train()
    inputs = {modality: values.to(device) for modality, values in inputs.items()}
    labels = labels.to(device)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], eps=1e-8, betas=(0.9, 0.999))

    last, log_file = folder / "checkpoints" / "last.pt", folder / "log.jsonl"
    start, best = load_checkpoint(last, model, optimizer) if resume and last.exists() else (0, None)
    log = read_log(log_file)[:start]
    anchors = tuple(inputs) if takes_anchor(loss) else ()

    with _tensorboard(folder / "tensorboard", start) as writer:
        for epoch in range(start, settings.epochs):
            began = time.perf_counter()
            rate = learning_rate(epoch, settings.epochs, settings.learning_rate)
            for group in optimizer.param_groups:
                group["lr"] = rate
            torch.manual_seed(derive_seed(settings.seed, "dropout", epoch))
            losses = [
                _step(model, loss, optimizer, batch_inputs(inputs, rows, epoch, settings), labels[rows], anchor)
                for rows, anchor in _epoch_steps(n, settings, epoch, anchors)
            ]
            steps = torch.stack(losses)
            if not steps.isfinite().all():
                bad = int((~steps.isfinite()).nonzero()[0])
                raise JobError(
                    f"epoch {epoch}, step {bad}: the loss is {steps[bad].item()}; lower train.learning_rate "
                    f"(now {rate:g}); the last good checkpoint is {last if last.exists() else 'none yet'}"
                )
            entry: dict[str, Any] = {"epoch": epoch, "loss": steps.mean().item(), "learning_rate": rate}
            done = epoch + 1
            due = settings.validate_every and done % settings.validate_every == 0
            if validate and settings.validate_every and (due or done == settings.epochs):
                entry["validation"] = validate(model)
                score = selection_score(entry["validation"])
                if best is None or score > best:
                    best = score
                    model.save_pretrained(folder / "checkpoints" / "best")
            entry["seconds"] = round(time.perf_counter() - began, 3)
            log.append(entry)
            _write_log(log_file, log)
            _write_events(writer, entry)
            if done % settings.checkpoint_every == 0 or done == settings.epochs:
                save_checkpoint(last, model, optimizer, done, best)
            if progress:
                progress(done, settings.epochs)
    model.eval()
    return log


def selection_score(validation: Validation) -> float:
    """The figure that picks the best epoch: mean of image->text and text->image, or of all tasks without those."""
    cross = [validation[task] for task in ("image->text", "text->image") if task in validation]
    values = cross or list(validation.values())
    return sum(values) / len(values)


def takes_anchor(loss: nn.Module) -> bool:
    """Whether a loss trains one modality at a time, given as ``anchor``."""
    return "anchor" in inspect.signature(loss.forward).parameters


def pick_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one, else the CPU; anything else is torch's own name of a device."""
    if name != "auto":
        return torch.device(name)
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of ``log.jsonl``; an empty list if there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _epoch_steps(
    n: int, settings: TrainSettings, epoch: int, anchors: tuple[str, ...]
) -> Iterator[tuple[Tensor, str | None]]:
    """The (rows, anchor) of every step of an epoch. Without anchors: one pass. With: a full pass for each in turn,
    or both for each batch."""
    if not anchors:
        for rows in epoch_batches(n, settings.batch_size, settings.seed, epoch):
            yield rows, None
    elif settings.alternate == "epoch":
        for anchor in anchors:
            for rows in epoch_batches(n, settings.batch_size, settings.seed, epoch, anchor):
                yield rows, anchor
    else:
        for rows in epoch_batches(n, settings.batch_size, settings.seed, epoch):
            for anchor in anchors:
                yield rows, anchor


def _step(
    model: HashModel,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: dict[str, Tensor],
    labels: Tensor,
    anchor: str | None,
) -> Tensor:
    outputs = {}
    for modality, values in inputs.items():
        # The other modality of an anchored loss is a constant: no graph for it.
        with torch.no_grad() if anchor not in (None, modality) else nullcontext():
            outputs[modality] = model.branches[modality](values)
    value: Tensor = loss(outputs, labels) if anchor is None else loss(outputs, labels, anchor=anchor)
    optimizer.zero_grad(set_to_none=True)
    value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return value.detach()


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
