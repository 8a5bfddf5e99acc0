"""``experiment robustness``: what corrupted images, noise of tags and labels, and an attack cost each loss."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.errors import InputError
from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.perturbations import ATTACKS, CORRUPTIONS, TAG_NOISE, attack
from channelhash.lab.experiments.results import measured
from channelhash.lab.experiments.tables.rendering import Cell
from channelhash.lab.experiments.tables.results import all_views, best_means, losses_table, print_spread, spread
from channelhash.metrics.code_files import evaluate_sets
from channelhash.models.hash_model import Branch
from channelhash.models.image_encoders import unit_pixels
from channelhash.runs.evaluate import run_codes
from channelhash.runs.folder import open_run
from channelhash.training.batches import prepare_inputs
from channelhash.utils.plotting import arrow

#: Shares of training rows that are given the labels of another row; 0 is the run whose queries are perturbed.
LABEL_NOISE = (0.0, 0.2, 0.4)
#: The losses that are compared: the paper's, and DSCH as recommended.
LOSSES = {**METHODS, "DSCH, recommended": {"name": "dsch", "recommended": True}}
_NOISY = ", labels of others "
_AS_IT_IS = "as they are|"
_ATTACK = "attack, ε in 255ths"
_BATCH = 256
#: Modality whose queries are perturbed -> the task that is tabulated.
_TASKS = {"image": "image->text", "text": "text->image"}
# Perturbation -> method -> the score of each seed.
_Rows = dict[str, dict[str, list[float]]]


def _grid(design: Design) -> list[GridRun]:
    """Return each loss with each share of noisy labels.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> [run.name for run in _grid(Design(DATASETS["synthetic"], [32], [0], {"SCH": {"name": "sch"}}))]
    ['sch-k32-seed0', 'sch-labels-of-others-0.2-k32-seed0', 'sch-labels-of-others-0.4-k32-seed0']
    """
    runs = []
    for method, loss in design.losses.items():
        for share in LABEL_NOISE:
            train = {**design.base.get("train", {}), "label_noise": share}
            name = f"{method}{_NOISY}{share:g}" if share else method
            runs += replace(design, base={**design.base, "train": train}).runs(name, loss)
    return runs


def perturbed_scores(folder: Path) -> dict[str, dict[str, float]]:
    """Return perturbation -> task -> tie-aware mAP of a run's test queries over R, which stays as it is.

    Perturbations are named like ``"noise, σ|0.05"``.

    Raises:
        InputError: the run's model reads neither pixels nor tokens.
    """
    codes, run, scores = run_codes(folder), open_run(folder), {}
    run.model.eval()
    queries = run.collection.records.take(run.splits.query)
    for modality in run.model.modalities:
        inputs, branch = prepare_inputs(run.model, queries, modality).cpu(), run.model.cpu().branch(modality)
        for name, changed in _perturbed(branch, inputs, run.config.train.seed):
            query = replace(codes.query, codes={modality: _encode(branch, changed)})
            tasks, _ = evaluate_sets(query, codes.retrieval, f"{folder}, {name}", ())
            scores[name] = {task: float(figures["map_tie_aware"]) for task, figures in tasks.items()}
    if not scores:
        raise InputError(
            f"{folder}: its model reads neither pixels nor tokens: nothing can be perturbed; take a model "
            "such as small or tdsrdh"
        )
    return scores


def _perturbed(branch: Branch, inputs: Tensor, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name of each perturbation of pixels or tokens, and what they become."""
    if inputs.dtype == torch.uint8:
        pixels = unit_pixels(inputs)
        for name, corruption in CORRUPTIONS.items():
            for size in corruption.sizes:
                yield f"{name}|{size:g}", corruption.apply(pixels, size, seed)
        for size in ATTACKS:
            changed = attack(branch, pixels, size / 255)
            if changed is not None:
                yield f"{_ATTACK}|{size:g}", changed
    elif inputs.dtype == torch.int32:
        for name, noise in TAG_NOISE.items():
            for size in noise.sizes:
                yield f"{name}|{size:g}", noise.apply(inputs, size, seed)


@torch.no_grad()
def _encode(branch: Branch, inputs: Tensor) -> PackedCodes:
    return pack(binarize(torch.cat([branch(part).float() for part in torch.split(inputs, _BATCH)])))


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return mAP by perturbation of images, of texts and of labels, and every cell of the runs as ever."""
    finished = [result for result in results if result.status == "finished"]
    clean = [result for result in finished if _NOISY not in result.method]
    perturbed = {
        result.name: measured(result, "robustness", partial(perturbed_scores, result.folder)) for result in clean
    }
    tables = []
    for modality, task in _TASKS.items():
        rows: _Rows = {}
        for run in clean:
            _add(rows, _AS_IT_IS, run.method, run.score(task))
            for name, scores in perturbed[run.name].items():
                if task in scores:
                    _add(rows, name, run.method, scores[task])
        if len(rows) > 1:
            tables.append(_table(f"robustness-{modality}", f"{arrow(task)}, queries perturbed", rows))
    by_labels: _Rows = {}
    for run in finished:
        method, _, share = run.method.partition(_NOISY)
        _add(
            by_labels,
            f"labels of others|{share or 0}",
            method,
            float(np.mean([run.score(task) for task in _TASKS.values()])),
        )
    title = "mean of image → text and text → image, training labels wrong"
    return [*tables, _table("robustness-labels", title, by_labels), *all_views(losses_table, results)]


def _add(rows: _Rows, name: str, method: str, score: float) -> None:
    rows.setdefault(name, {}).setdefault(method, []).append(score)


def _table(name: str, title: str, rows: _Rows) -> Table:
    """Return a block a perturbation, a row a size, a column a method."""
    methods = list(dict.fromkeys(method for scores in rows.values() for method in scores))
    body = []
    for row, scores in rows.items():
        kind, _, size = row.partition("|")
        spreads = [spread(scores[method]) if method in scores else None for method in methods]
        cells = [
            Cell(print_spread(each) if each else "–", best)
            for each, best in zip(spreads, best_means(spreads), strict=True)
        ]
        body.append((Cell(kind), Cell(size), *cells))
    return Table(
        name,
        f"Tie-aware mAP under perturbation: {title}",
        ("Perturbation", "Size", *methods),
        tuple(body),
        "In percent, mean ± sample standard deviation (ddof 1) over seeds, last epoch; the retrieval set R is never "
        "perturbed. Best mean of each row in bold. The attack knows the model, not the labels: ten steps of projected "
        "gradient descent within ε of every pixel.",
    )


EXPERIMENT = Experiment(
    name="robustness",
    title="Robustness to corrupted queries and wrong labels",
    losses=LOSSES,
    bits=(32,),
    grid=_grid,
    tables=_tables,
)
