"""``experiment robustness``: what corrupted images, noise of tags and labels, and an attack cost
each loss.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.errors import InputError
from channelhash.lab.experiments.experiment import (
    METHODS,
    Design,
    Experiment,
    GridRun,
    Result,
    Table,
)
from channelhash.lab.experiments.results import cross_tasks, finished
from channelhash.lab.experiments.tables import all_views, losses_table, spread_cells
from channelhash.lab.experiments.text_tables import Cell
from channelhash.metrics.plots import arrow
from channelhash.metrics.report import evaluate_sets
from channelhash.models.backbones import unit_pixels
from channelhash.models.hash_model import Branch
from channelhash.runs.evaluate import run_codes
from channelhash.runs.folder import open_run
from channelhash.text.words import pad_tokens
from channelhash.training.inputs import prepare_inputs
from channelhash.utils.image_files import open_image
from channelhash.utils.seeds import generator
from channelhash.utils.torchvision_compat import functional

#: Images whose gradients are computed together.
_ATTACKED = 64
#: Rows that are encoded together.
_BATCH = 256


#: A change, which takes the inputs of a branch, a size and a seed and returns inputs of the same
#: shape; and its sizes, from small to large.
_Perturbation = tuple[Callable[[Tensor, float, int], Tensor], Sequence[float]]


def _add_noise(pixels: Tensor, sigma: float, seed: int) -> Tensor:
    """Add normal noise of standard deviation ``sigma``, cut to [0, 1].

    >>> _add_noise(torch.full((1, 3, 2, 2), 0.5), 0.0, seed=0).unique().tolist()
    [0.5]
    """
    noise = generator(seed, "image noise").standard_normal(pixels.shape, dtype=np.float32)
    return (pixels + sigma * torch.from_numpy(noise)).clamp(0, 1)


def _blur(pixels: Tensor, share: float, seed: int = 0) -> Tensor:
    """Blur by a Gaussian whose standard deviation is ``share`` of the image's side.

    >>> _blur(torch.full((1, 3, 8, 8), 0.5), 0.25).isclose(torch.tensor(0.5)).all().item()
    True
    """
    sigma = share * pixels.shape[-1]
    width = min(2 * int(np.ceil(3 * sigma)) + 1, 2 * pixels.shape[-1] - 1)
    blurred: Tensor = functional.gaussian_blur(pixels, [width, width], [sigma, sigma])
    return blurred


def _lower_contrast(pixels: Tensor, factor: float, seed: int = 0) -> Tensor:
    """Move each image to its mean grey, of which it keeps ``factor`` of the distance.

    >>> _lower_contrast(torch.rand(1, 3, 4, 4), 0.0).std().item() < 1e-6
    True
    """
    changed: Tensor = functional.adjust_contrast(pixels, factor)
    return changed


def _pixelate(pixels: Tensor, side: float, seed: int = 0) -> Tensor:
    """Replace squares of ``side`` of the image's side by their mean.

    >>> len(_pixelate(torch.rand(1, 1, 8, 8), 0.5).unique())
    4
    """
    means = torch.nn.functional.adaptive_avg_pool2d(pixels, round(1 / side))
    return torch.nn.functional.interpolate(means, size=pixels.shape[-2:], mode="nearest")


def _compress(pixels: Tensor, quality: float, seed: int = 0) -> Tensor:
    """Write as JPEG of this quality, 1 … 95, and read again.

    >>> _compress(torch.full((1, 3, 8, 8), 1.0), 10).unique().tolist()
    [1.0]
    """
    rows = []
    for image in (255 * pixels).round().byte().permute(0, 2, 3, 1).numpy():
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=round(quality))
        rows.append(np.asarray(open_image(file)))
    return torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).float() / 255


def _occlude(pixels: Tensor, side: float, seed: int) -> Tensor:
    """Cover a grey square of ``side`` of the image's side, at a place drawn for each image.

    >>> _occlude(torch.ones(1, 3, 8, 8), 0.5, seed=0).mean().item()  # a quarter is 0.5
    0.875
    """
    height, width = pixels.shape[-2:]
    rows = round(side * height)
    columns = round(side * width)
    places = generator(seed, "occlusion").random((len(pixels), 2))
    covered = pixels.clone()
    for image, (y, x) in zip(covered, places.tolist(), strict=True):
        top = round(y * (height - rows))
        left = round(x * (width - columns))
        image[:, top : top + rows, left : left + columns] = 0.5
    return covered


#: Changes of pixels ``(n, 3, s, s)`` in [0, 1].
_CORRUPTIONS: Mapping[str, _Perturbation] = {
    "noise, σ": (_add_noise, (0.05, 0.1, 0.2)),
    "blur, σ by side": (_blur, (1 / 64, 1 / 32, 1 / 16)),
    "contrast kept": (_lower_contrast, (0.5, 0.25, 0.1)),
    "pixelation, by side": (_pixelate, (1 / 32, 1 / 16, 1 / 8)),
    "JPEG, quality": (_compress, (30, 15, 5)),
    "occlusion, by side": (_occlude, (0.25, 0.5, 0.75)),
}


def _drop_tokens(tokens: Tensor, share: float, seed: int) -> Tensor:
    """Drop each token with probability ``share`` and close the gaps; a text keeps at least one
    token.

    >>> text = torch.tensor([[5, 7, 0]], dtype=torch.int32)
    >>> int((_drop_tokens(text, share=1, seed=0) > 0).sum())
    1
    """
    texts = []
    for row, text in enumerate(tokens.numpy()):
        random = generator(seed, "drop tokens", 0, row)
        real = text[text != 0]
        remaining = real[random.random(len(real)) >= share]
        if len(real) and not len(remaining):
            remaining = real[[int(random.integers(len(real)))]]
        texts.append(remaining)
    return torch.from_numpy(pad_tokens(texts, tokens.shape[1]))


def _replace_tokens(tokens: Tensor, share: float, seed: int) -> Tensor:
    """Replace each token with probability ``share`` by one of the distinct tokens of all texts, all
    equally likely.
    """
    vocabulary = np.unique(tokens[tokens != 0])
    result = tokens.clone()
    for row, text in enumerate(tokens.numpy()):
        random = generator(seed, "replace tokens", 0, row)
        hit = (random.random(len(text)) < share) & (text != 0)
        if hit.any():
            drawn = np.asarray(random.integers(len(vocabulary), size=len(text)))
            result[row, hit] = torch.from_numpy(vocabulary[drawn[hit]])
    return result


#: Changes of token ids ``(n, m)``, 0 for padding: a text keeps a tag, and those that replace others
#: are of other texts.
_TAG_NOISE: Mapping[str, _Perturbation] = {
    "tags dropped": (_drop_tokens, (0.25, 0.5, 0.75)),
    "tags replaced": (_replace_tokens, (0.25, 0.5, 0.75)),
}
#: Largest change of a pixel by `_attack`, in 255ths.
_ATTACKS = (1, 2, 4)


def _attack(branch: Branch, pixels: Tensor, epsilon: float, steps: int = 10) -> Tensor | None:
    """Change each pixel by at most ``epsilon``, so that the code of an image moves away from what
    it was.

    Projected gradient descent (Madry et al., ICLR 2018): steps of 2.5 ε / ``steps`` along the sign
    of the gradient of −mean_j b_j tanh z_j, for the outputs z and the code b of the image as it is.
    The attacker knows the model, and no label.

    >>> branch = Branch(torch.tensor, torch.nn.Flatten(), torch.nn.Linear(12, 8))
    >>> pixels = torch.full((1, 3, 2, 2), 0.5)
    >>> changed = _attack(branch, pixels, epsilon=0.1)
    >>> ((changed - pixels).abs() <= 0.1 + 1e-6).all().item()
    True
    """
    encoder = branch.frozen.encoder if branch.frozen else branch.encoder
    rows = []
    for clean in torch.split(pixels, _ATTACKED):
        with torch.no_grad():
            signs = torch.where(branch(clean) >= 0, 1.0, -1.0)
        changed = clean.clone()
        for _ in range(steps):
            changed.requires_grad_()
            agreement = (signs * torch.tanh(branch.head(encoder(changed)))).mean()
            if not agreement.requires_grad:
                return None
            (slope,) = torch.autograd.grad(agreement, changed, allow_unused=True)
            if slope is None:
                return None
            stepped = changed.detach() - 2.5 * epsilon / steps * slope.sign()
            changed = stepped.clamp(clean - epsilon, clean + epsilon).clamp(0, 1)
        rows.append(changed.detach())
    return torch.cat(rows)


#: Shares of training rows that are given the labels of another row; 0 is the run whose queries are
#: perturbed.
_LABEL_NOISE = (0.0, 0.2, 0.4)
#: The losses that are compared: the paper's, and DSCH as recommended.
_LOSSES = {**METHODS, "DSCH, recommended": {"name": "dsch", "recommended": True}}
#: What stands in the name of a method between loss and share of wrong labels.
_NOISY = ", labels of others "
#: Models, or encoders of models, that compute on features from elsewhere or on bytes alone.
_OPAQUE = ("features", "photo-backbones")
#: Perturbation and size, such as ``"noise, σ|0.05"`` -> method -> the score of each seed.
_Rows = dict[str, dict[str, list[float]]]


def _grid(design: Design) -> list[GridRun]:
    """Return each loss with each share of noisy labels.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> design = Design(DATASETS["synthetic"], [32], [0], {"SCH": {"name": "sch"}})
    >>> [run.name for run in _grid(design)]
    ['sch-k32-seed0', 'sch-labels-of-others-0.2-k32-seed0', 'sch-labels-of-others-0.4-k32-seed0']
    """
    runs = []
    for method, loss in design.losses.items():
        for share in _LABEL_NOISE:
            train = {**design.base.get("train", {}), "label_noise": share}
            name = f"{method}{_NOISY}{share:g}" if share else method
            runs += replace(design, base={**design.base, "train": train}).runs(name, loss)
    for run in runs:
        model = getattr(run.config.model, "encoder", run.config.model_name)
        if model in _OPAQUE:
            raise InputError(
                f"experiment robustness: {model} reads neither pixels nor tokens; take small or "
                "tdsrdh"
            )
    return runs


def _perturbed_scores(folder: Path) -> dict[str, dict[str, float]]:
    """Return perturbation -> task -> tie-aware mAP of a run's perturbed test queries over R, which
    is never perturbed; empty for a model that reads neither pixels nor tokens.
    """
    codes = run_codes(folder)
    run = open_run(folder)
    scores = {}
    run.model.eval()
    queries = run.collection.records.take(run.splits.query)
    for modality in run.model.modalities:
        inputs = prepare_inputs(run.model, queries, modality).cpu()
        branch = run.model.cpu().branch(modality)
        for name, changed in _perturbed(branch, inputs, run.config.train.seed):
            query = replace(codes.query, codes={modality: _encode(branch, changed)})
            tasks, _ = evaluate_sets(query, codes.retrieval, f"{folder}, {name}", ())
            scores[name] = {
                task: float(figures["map_tie_aware"]) for task, figures in tasks.items()
            }
    return scores


def _perturbed(branch: Branch, inputs: Tensor, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name of each perturbation of pixels or tokens, and what they become."""
    if inputs.dtype == torch.int32:
        yield from _apply(_TAG_NOISE, inputs, seed)
    elif inputs.dtype == torch.uint8:
        pixels = unit_pixels(inputs)
        yield from _apply(_CORRUPTIONS, pixels, seed)
        for size in _ATTACKS:
            changed = _attack(branch, pixels, size / 255)
            if changed is not None:
                yield f"attack, ε in 255ths|{size:g}", changed


def _apply(
    kinds: Mapping[str, _Perturbation], inputs: Tensor, seed: int
) -> Iterator[tuple[str, Tensor]]:
    for name, (perturb, sizes) in kinds.items():
        for size in sizes:
            yield f"{name}|{size:g}", perturb(inputs, size, seed)


@torch.no_grad()
def _encode(branch: Branch, inputs: Tensor) -> PackedCodes:
    return pack(binarize(torch.cat([branch(part).float() for part in torch.split(inputs, _BATCH)])))


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return mAP by perturbation of images, of texts and of labels, and every cell of the runs."""
    runs = finished(results)
    tasks = cross_tasks(runs[0].tasks()) if runs else []
    tables = []
    for task in tasks:
        rows = _perturbed_rows(runs, task)
        if len(rows) > 1:
            source = task.partition("->")[0]
            tables.append(_table(f"robustness-{source}", f"{arrow(task)}, queries perturbed", rows))
    title = f"mean of {' and '.join(map(arrow, tasks))}, training labels wrong"
    return [
        *tables,
        _table("robustness-labels", title, _label_rows(runs, tasks)),
        *all_views(losses_table, results),
    ]


def _perturbed_rows(runs: Sequence[Result], task: str) -> _Rows:
    """Return the scores of runs with true labels, as their queries are and perturbed."""
    rows: _Rows = {}
    for run in runs:
        if _NOISY in run.method:
            continue
        _add(rows, "as they are|", run.method, run.score(task))
        perturbed = run.measure("robustness", partial(_perturbed_scores, run.folder))
        for name, scores in perturbed.items():
            if task in scores:
                _add(rows, name, run.method, scores[task])
    return rows


def _label_rows(runs: Sequence[Result], tasks: Sequence[str]) -> _Rows:
    """Return the mean score over tasks by the share of wrong labels."""
    rows: _Rows = {}
    for run in runs:
        method, _, share = run.method.partition(_NOISY)
        score = float(np.mean([run.score(task) for task in tasks]))
        _add(rows, f"labels of others|{share or 0}", method, score)
    return rows


def _add(rows: _Rows, row: str, method: str, score: float) -> None:
    rows.setdefault(row, {}).setdefault(method, []).append(score)


def _table(name: str, title: str, rows: _Rows) -> Table:
    """Return a block a perturbation, a row a size, a column a method."""
    methods = list(dict.fromkeys(chain.from_iterable(rows.values())))
    body = []
    for row, scores in rows.items():
        kind, _, size = row.partition("|")
        body.append(
            (Cell(kind), Cell(size), *spread_cells([scores.get(method, ()) for method in methods]))
        )
    return Table(
        name,
        f"Tie-aware mAP under perturbation: {title}",
        ("Perturbation", "Size", *methods),
        tuple(body),
        "In percent, mean ± sample standard deviation (ddof 1) over seeds, last epoch; the "
        "retrieval set R is never perturbed. Best mean of each row in bold. The attack knows the "
        "model, not the labels: ten steps of projected gradient descent within ε of every pixel.",
    )


_TITLE = "Robustness to corrupted queries and wrong labels"
EXPERIMENT = Experiment("robustness", _TITLE, _tables, _LOSSES, bits=(32,), grid=_grid)
