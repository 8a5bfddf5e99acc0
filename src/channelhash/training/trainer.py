"""The training loop of the paper (``protocol.md`` § 6)."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from channelhash.config import TrainSettings
from channelhash.errors import JobError
from channelhash.losses import HashLoss
from channelhash.models.backbones import load_weights, memory_advice, read_weights
from channelhash.models.hash_model import HashModel
from channelhash.training.distributed import from_first, rank, wait_for_all
from channelhash.training.inputs import TrainingSet
from channelhash.training.step import Steps, load_checkpoint, save_checkpoint
from channelhash.utils.files import reading, space_for, write_text
from channelhash.utils.progress import Progress, no_progress, note
from channelhash.utils.seeds import derive_seed

#: Scores of one validation: task name -> score by the validation's measure.
Validation = dict[str, float]
#: A line of ``log.jsonl``: one epoch.
Entry = dict[str, Any]
#: Measure of a validation as in the reports of an evaluation -> its name for people.
MEASURES = {"map_tie_aware": "tie-aware mAP", "recall_at_10": "Recall@10"}


class Validator(NamedTuple):
    """How a model is validated.

    Attributes:
        scores: computes the scores of the model as it is.
        measure: what they are, a key of `MEASURES`; the larger the better.

    >>> Validator(lambda: {"text->image": 0.5}).measure
    'map_tie_aware'
    """

    scores: Callable[[], Validation]
    measure: str = "map_tie_aware"


def kept_validation(log: Sequence[Mapping[str, Any]], keep: str) -> Validation:
    """Return the validation of the model that a training kept, the ``last`` or the ``best``; empty without one.

    >>> log = [{"validation": {"text->image": score}} for score in (0.25, 0.5, 0.375)]
    >>> kept_validation(log, "last"), kept_validation(log, "best")
    ({'text->image': 0.375}, {'text->image': 0.5})
    """
    validations: list[Validation] = [entry["validation"] for entry in log if "validation" in entry]
    if not validations:
        return {}
    return max(validations, key=selection_score) if keep == "best" else validations[-1]


def measure_of(log: Sequence[Mapping[str, Any]]) -> str:
    """Return the measure of the validations in a log; those of mAP do not name it.

    >>> measure_of([{"epoch": 0, "validation": {"text->image": 0.5}}])
    'map_tie_aware'
    """
    return next((str(entry["measure"]) for entry in log if "measure" in entry), "map_tie_aware")


def train(
    model: HashModel,
    loss: HashLoss,
    data: TrainingSet,
    settings: TrainSettings,
    folder: Path,
    validate: Validator | None = None,
    progress: Progress = no_progress,
) -> list[Entry]:
    """Train ``model`` in place, and write ``log.jsonl``, ``checkpoints/`` and events of TensorBoard into ``folder``.

    It goes on from ``checkpoints/last.pt``, on a CPU to the bits of an uninterrupted training: draws are functions of
    (seed, epoch). Of several processes (`distributed`) each takes its shard of a batch, the first validates and writes.

    Args:
        model: on the device to train on; its modalities are those of ``data``.
        loss: see `Steps`.
        data: the training rows.
        settings: the section ``train``.
        folder: the run's folder.
        validate: every ``validate_every`` epochs, on averaged weights if any; `selection_score` chooses the best.
        progress: called with (finished epochs, epochs).

    Returns:
        The log, one entry an epoch; ``patience`` may end it early.

    Raises:
        JobError: the loss became NaN or infinite (the checkpoint before that epoch is kept), or memory ran out.
    """
    steps = Steps(model.train(), loss, data.targets, settings, model.device, data.images)
    last, best = (folder / "checkpoints" / name for name in ("last.pt", "best"))
    start = load_checkpoint(last, model, steps.loss, steps.optimizer, steps.average) if last.exists() else 0
    log, first = read_log(folder / "log.jsonl")[:start], rank() == 0
    advice = memory_advice(_ADVICE.format(settings.batch_size))
    with _recorder(folder, start, first) as record, advice:
        for epoch in range(start, settings.epochs):
            if _waited_long_enough(log, settings.patience):
                break
            began, done = time.perf_counter(), epoch + 1
            torch.manual_seed(derive_seed(settings.seed, "dropout", epoch, *(() if first else (rank(),))))
            losses = steps.run(steps.batches(data.sources, epoch))
            _check_finite(losses, epoch, steps.rate, last)
            entry: Entry = {"epoch": epoch, "loss": losses.mean().item(), "learning_rate": steps.rate}
            due = settings.validate_every and (done % settings.validate_every == 0 or done == settings.epochs)
            if validate and due:
                with steps.averaged():
                    entry["validation"] = from_first(validate.scores() if first else None)
                    if validate.measure != "map_tie_aware":
                        entry["measure"] = validate.measure
                    if first and selection_score(entry["validation"]) > max(_scores(log), default=-math.inf):
                        model.save_pretrained(best)
            entry["seconds"] = round(time.perf_counter() - began, 3)
            log.append(entry)
            record(log)
            ends = done == settings.epochs or _waited_long_enough(log, settings.patience)
            if first and (ends or done % settings.checkpoint_every == 0):
                save_checkpoint(last, model, steps.loss, steps.optimizer, done, steps.average)
            note(progress, f"loss {entry['loss']:.4g}")
            progress(done, settings.epochs)
    _give_final_weights(model, steps, best if settings.keep == "best" else None)
    return log


def _give_final_weights(model: HashModel, steps: Steps, best: Path | None) -> None:
    """Give ``model`` the weights of its folder ``best``, else the average of its weights if any; in evaluation mode."""
    if best is not None:
        wait_for_all()  # the first process has written it
        file = best / "model.safetensors"
        load_weights(model.trained_state(), read_weights(file), str(file))
    elif steps.average:
        steps.average.give()
    model.eval()


def selection_score(validation: Validation) -> float:
    """Return the score that picks the best epoch: mean of image->text and text->image, or of all tasks without those.

    >>> selection_score({"image->text": 0.5, "text->image": 0.75, "image->image": 1.0})
    0.625
    """
    cross = [validation[task] for task in ("image->text", "text->image") if task in validation]
    values = cross or list(validation.values())
    return sum(values) / len(values)


def read_log(path: Path) -> list[Entry]:
    """Return the lines of ``log.jsonl``; an empty list if there is no such file.

    Raises:
        InputError: a line is not JSON, or lacks a number.

    >>> read_log(Path("no run/log.jsonl"))
    []
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [_entry(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def _entry(line: bytes, place: str) -> Entry:
    with reading(place, "no epoch of this version's log", "remove the line"):
        entry: Entry = json.loads(line)
        numbers = [entry["epoch"], entry["loss"], entry.get("seconds", 0), *entry.get("validation", {}).values()]
        for number in numbers:
            math.isnan(number)  # a number that a float can hold, or an error
    return entry


_ADVICE = "with train.batch_size {}; lower it (train.accumulate keeps the samples of a step), or give more processes"


def _check_finite(losses: Tensor, epoch: int, rate: float, checkpoint: Path) -> None:
    if not losses.isfinite().all():
        step = int((~losses.isfinite()).nonzero()[0])
        raise JobError(
            f"epoch {epoch}, step {step}: the loss is {losses[step].item()}; lower train.learning_rate "
            f"(now {rate:g}); the last good checkpoint is {checkpoint if checkpoint.exists() else 'none yet'}"
        )


def _waited_long_enough(log: list[Entry], patience: int) -> bool:
    """Return whether none of the last ``patience`` validations is better than the best before them."""
    scores = _scores(log)
    return 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience])


def _scores(log: list[Entry]) -> list[float]:
    return [selection_score(entry["validation"]) for entry in log if "validation" in entry]


@contextmanager
def _recorder(folder: Path, start: int, writes: bool) -> Iterator[Callable[[list[Entry]], None]]:
    """Yield a function that writes the log, and its last entry as events, if this process ``writes``."""
    if not writes:
        yield lambda log: None
        return
    from torch.utils.tensorboard import SummaryWriter  # a second of import that only training pays

    place = folder / "tensorboard"
    with space_for(place):
        events = SummaryWriter(str(place), purge_step=start)

    def record(log: list[Entry]) -> None:
        write_text(folder / "log.jsonl", "".join(json.dumps(entry) + "\n" for entry in log))
        entry, name = log[-1], f"validation {measure_of(log)}"
        scalars = {"loss": entry["loss"], "learning_rate": entry["learning_rate"]}
        scalars |= {f"{name}/{task}": value for task, value in entry.get("validation", {}).items()}
        with space_for(place):
            for name, value in scalars.items():
                events.add_scalar(name, value, entry["epoch"])

    try:
        yield record
    finally:
        with space_for(place):
            events.close()
