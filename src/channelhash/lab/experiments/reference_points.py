"""Floor and ceiling of a grid: what codes in closed form reach on the same features, and what the models' outputs and
the features themselves reach unquantised.

Each is a result like a run's, in ``runs/``, so that tables and ``figures.csv`` hold it; its settings name it in the
section ``loss`` and say ``anchor: floor`` or ``anchor: ceiling``.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from channelhash.codes import binarize, pack
from channelhash.codes.code_set import CodeSet
from channelhash.config import RunConfig
from channelhash.data.collection import load_collection
from channelhash.data.records import Records
from channelhash.data.splits import Splits
from channelhash.lab.experiments.runner import Grid, GridRun, Say, write_result
from channelhash.metrics.code_files import evaluate_sets
from channelhash.metrics.real_valued import RankingEvaluation, evaluate_cosines
from channelhash.models import HashModel, load_model
from channelhash.models.linear_hashing import LinearMap, cca, cca_itq, pca_itq, random_projections
from channelhash.runs.build import create_model, make_splits
from channelhash.training.batches import prepare_inputs
from channelhash.training.feature_inputs import feature_records
from channelhash.utils.device import pick_device
from channelhash.utils.files import write_text
from channelhash.utils.progress import no_stage_progress

Kind = Literal["floor", "ceiling"]
Array = NDArray[np.float64]
Views = Mapping[str, Array]

#: Method of the codes in closed form -> maps of training features, by (features, k, seed, one space).
FLOORS: dict[str, Callable[[Views, int, int, bool], dict[str, LinearMap]]] = {
    "LSH": random_projections,
    "PCA-ITQ": pca_itq,
    "CCA-ITQ": lambda features, n_bits, seed, one_space: cca_itq(features, n_bits, seed),
}
#: Method of the features' own cosines.
FEATURES = "features, cosine"
#: What an unquantised run is called after.
UNQUANTISED = ", unquantised"

# Raw inputs of encoders that are trained: pictures as so many pixels a side, texts as counts of so many words.
_SIDE, _WORDS = 16, 1000
_CHUNK = 1024


@dataclass(frozen=True)
class _Data:
    """One data set, its splits and its fixed features."""

    records: Records
    splits: Splits
    features: Views
    one_space: bool

    def part(self, rows: NDArray[np.int64]) -> Views:
        return {modality: values[rows] for modality, values in self.features.items()}


def add_anchors(grid: Grid, folder: Path, say: Say) -> None:
    """Evaluate the floors and ceilings of a grid that has run, and list them in its ``grid.json``.

    What is there already is not computed again. A run that is not finished has no ceiling yet.

    Args:
        grid: of one data set and one model.
        folder: the grid's folder.
        say: called with a line an anchor.
    """
    listed: list[tuple[str, str, dict[str, Any]]] = []
    data: _Data | None = None
    for run, kind, method in _anchors(grid, folder):
        name, settings = _name(run, kind, method), _settings(run.config, kind, method)
        listed.append((name, method, settings))
        place = folder / "runs" / name
        if (place / "result.json").exists():
            continue
        data = data or _read(run.config)
        _evaluate(run, kind, method, data, folder, place)
        say(f"{name} finished")
    index = json.loads((folder / "grid.json").read_text(encoding="utf-8"))
    index["runs"] += [{"name": name, "method": method, "settings": settings} for name, method, settings in listed]
    write_text(folder / "grid.json", json.dumps(index, indent=2))


def fixed_features(config: RunConfig, records: Records, train: NDArray[np.int64]) -> dict[str, Array]:
    """What the model of a configuration reads that no training changes, ``(n, d)`` a modality.

    Outputs of an encoder without trained parameters (frozen backbone, standardised features). Where the encoder is
    trained there are none, and its inputs stand in: pictures as 16 × 16 pixels, texts as counts of the 1000 most
    frequent words of the training rows.
    """
    model = create_model(config, records.take(train)).to(pick_device(config.train.device))
    features = feature_records(model, records, config.train, no_stage_progress)
    feature_model = model.on_features()
    return {modality: _fixed(feature_model, features, modality, train) for modality in feature_model.modalities}


def _anchors(grid: Grid, folder: Path) -> list[tuple[GridRun, Kind, str]]:
    """(a run with the anchor's code length and seed, what it is, its method)."""
    cells = {(run.config.n_bits, run.config.train.seed): run for run in grid.runs}
    lengths = {run.config.n_bits: run for run in reversed(grid.runs)}
    done = [run for run in grid.runs if (folder / "runs" / run.name / "result.json").exists()]
    return [
        *((run, "floor", method) for method in FLOORS for run in cells.values()),
        *((run, "ceiling", FEATURES) for run in lengths.values()),
        *((run, "ceiling", run.method + UNQUANTISED) for run in done),
    ]


def _name(run: GridRun, kind: Kind, method: str) -> str:
    if kind == "floor":
        return f"floor-{method.lower()}-k{run.config.n_bits}-seed{run.config.train.seed}"
    return f"ceiling-features-k{run.config.n_bits}" if method == FEATURES else f"ceiling-{run.name}"


def _settings(config: RunConfig, kind: Kind, method: str) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load(config.to_yaml())
    return settings | {"loss": {"name": method, "anchor": kind}}


def _read(config: RunConfig) -> _Data:
    records = load_collection(config.sources).records
    splits = make_splits(config.split, records)
    features = fixed_features(config, records, splits.train)
    return _Data(records, splits, features, one_space=config.model_name == "cliphash")


def _evaluate(run: GridRun, kind: Kind, method: str, data: _Data, folder: Path, place: Path) -> None:
    config = run.config
    if kind == "floor":
        train = data.part(data.splits.train)
        maps = FLOORS[method](train, config.n_bits, config.train.seed, data.one_space)
        query, database = (
            _codes(maps, data, rows, config.n_bits) for rows in (data.splits.query, data.splits.retrieval)
        )
        tasks, histograms = evaluate_sets(query, database, str(place), config.evaluate.cutoffs)
        found = {task: (histograms[task].average_precision(), figures) for task, figures in tasks.items()}
        write_result(place, {"last": {"test": found}})
        return
    if method == FEATURES:
        cosines = _feature_cosines(data, config)
    else:
        outputs = run_outputs(load_model(folder / "runs" / run.name), config, data.records)
        cosines = _cosines(outputs, data, config)
    write_result(place, {"last": {"test": cosines}})


def _codes(maps: Mapping[str, LinearMap], data: _Data, rows: NDArray[np.int64], n_bits: int) -> CodeSet:
    codes = {modality: pack(binarize(maps[modality](values))) for modality, values in data.part(rows).items()}
    labels = data.records.labels[rows]
    return CodeSet([data.records.ids[i] for i in rows], codes, labels, n_bits, data.records.label_names)


def _feature_cosines(data: _Data, config: RunConfig) -> dict[str, RankingEvaluation]:
    """Of the features as they are; across modalities that share no space, of their canonical variates."""
    found = _cosines(data.features, data, config, across=data.one_space)
    if not data.one_space:
        train = data.part(data.splits.train)
        maps = cca(train, min(values.shape[1] for values in train.values()))
        common = {modality: maps[modality](values) for modality, values in data.features.items()}
        found |= {task: value for task, value in _cosines(common, data, config).items() if task not in found}
    return found


def _cosines(vectors: Views, data: _Data, config: RunConfig, across: bool = True) -> dict[str, RankingEvaluation]:
    """Every task; without ``across`` those within a modality."""
    splits, labels = data.splits, data.records.labels
    groups = [list(vectors)] if across else [[modality] for modality in vectors]
    found: dict[str, RankingEvaluation] = {}
    for modalities in groups:
        query, database = (
            {modality: vectors[modality][rows] for modality in modalities} for rows in (splits.query, splits.retrieval)
        )
        found |= evaluate_cosines(
            query, database, labels[splits.query], labels[splits.retrieval], config.evaluate.cutoffs
        )
    return found


def run_outputs(model: HashModel, config: RunConfig, records: Records) -> dict[str, Array]:
    """Real-valued outputs of a trained model, ``(n, k)`` a modality."""
    model.to(pick_device(config.train.device))
    features = feature_records(model, records, config.train, no_stage_progress)
    feature_model = model.on_features()
    outputs = feature_model.outputs_prepared(
        {name: prepare_inputs(feature_model, features, name) for name in feature_model.modalities}
    )
    return {modality: rows.numpy().astype(np.float64) for modality, rows in outputs.items()}


@torch.no_grad()
def _fixed(feature_model: HashModel, records: Records, modality: str, train: NDArray[np.int64]) -> Array:
    encoder, inputs = feature_model.branch(modality).encoder, prepare_inputs(feature_model, records, modality)
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        rows = [encoder(part.to(feature_model.device)).float().cpu() for part in torch.split(inputs, _CHUNK)]
    elif inputs.dtype == torch.uint8:
        shrink = torch.nn.AdaptiveAvgPool2d(_SIDE)
        rows = [shrink(part.float()).flatten(1) for part in torch.split(inputs, _CHUNK)]
    else:
        frequency = torch.bincount(inputs[torch.from_numpy(train)].flatten().long(), minlength=int(inputs.max()) + 1)
        frequency[0] = 0  # padding
        words = frequency.argsort(descending=True, stable=True)[:_WORDS]
        rows = [torch.stack([(inputs == word).sum(dim=1) for word in words[frequency[words] > 0]], dim=1)]
    return torch.cat(rows).numpy().astype(np.float64)
