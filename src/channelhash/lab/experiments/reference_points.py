"""The reference points of a grid: floors and ceilings that its losses stand between.

A floor is what codes in closed form reach on the same features; a ceiling is what the models' outputs, or the features
themselves, reach unquantised. Each is a result like a run's, in ``runs/``, so that tables and ``figures.csv`` hold it;
its settings name it in the section ``loss`` and say ``anchor: floor`` or ``anchor: ceiling``.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from channelhash.codes import binarize, pack
from channelhash.codes.code_set import CodeSet
from channelhash.config import RunConfig
from channelhash.data.collection import load_collection
from channelhash.data.records import Records
from channelhash.data.splits import Splits
from channelhash.lab.experiments.runner import Evaluated, Grid, GridRun, Notify, write_result
from channelhash.metrics.code_files import evaluate_sets
from channelhash.metrics.real_valued import RankingEvaluation, evaluate_cosines
from channelhash.models import HashModel, load_model
from channelhash.models.linear_hashing import LinearMap, cca, cca_itq, pca_itq, random_projections
from channelhash.runs.build import create_model
from channelhash.runs.splits import make_splits
from channelhash.training.batches import prepare_inputs
from channelhash.training.feature_inputs import feature_records
from channelhash.utils.device import pick_device
from channelhash.utils.files import write_text
from channelhash.utils.progress import no_stage_progress
from channelhash.utils.python_names import trusting

Kind = Literal["floor", "ceiling"]
Array = NDArray[np.float64]
Views = Mapping[str, Array]

#: Method of codes in closed form -> maps fitted to training features, by (features, k, seed, one space).
FLOORS: dict[str, Callable[[Views, int, int, bool], dict[str, LinearMap]]] = {
    "LSH": random_projections,
    "PCA-ITQ": pca_itq,
    "CCA-ITQ": lambda features, n_bits, seed, one_space: cca_itq(features, n_bits, seed),
}
#: Method of the features' own cosines.
FEATURES = "features, cosine"
#: Ends the method of an unquantised run.
UNQUANTISED = ", unquantised"

# Raw inputs of encoders that are trained: images of so many pixels a side, texts as counts of so many words.
_SIDE, _WORDS = 16, 1000
_CHUNK = 1024


class ReferencePoint(NamedTuple):
    """A floor or ceiling, with the code length and seed of a run."""

    run: GridRun
    kind: Kind
    method: str

    @property
    def name(self) -> str:
        """Name of its result in ``runs/``."""
        n_bits, seed = self.run.config.n_bits, self.run.config.train.seed
        if self.kind == "floor":
            return f"floor-{self.method.lower()}-k{n_bits}-seed{seed}"
        return f"ceiling-features-k{n_bits}" if self.method == FEATURES else f"ceiling-{self.run.name}"

    def settings(self) -> dict[str, Any]:
        """Return the settings of its result."""
        settings: dict[str, Any] = self.run.config.sections()
        return settings | {"loss": {"name": self.method, "anchor": self.kind}}


@dataclass(frozen=True)
class ReferenceData:
    """A data set, its splits and its fixed features, ``(n, d)`` a modality; of one space if those share one."""

    records: Records
    splits: Splits
    features: Views
    one_space: bool

    def part(self, rows: NDArray[np.int64]) -> Views:
        """Return the features of some rows."""
        return {modality: values[rows] for modality, values in self.features.items()}


def add_reference_points(grid: Grid, folder: Path, notify: Notify) -> None:
    """Evaluate the floors and ceilings of a grid that has run, and list them in its ``grid.json``.

    None is computed twice. A run that is not finished has no ceiling yet.

    Args:
        grid: of one data set and one model.
        folder: the grid's folder.
        notify: called with a line about each reference point.
    """
    points = reference_points(grid, folder)
    data: ReferenceData | None = None
    for point in points:
        result = folder / "runs" / point.name
        if not (result / "result.json").exists():
            data = data or read_data(point.run.config)
            write_result(result, {"last": {"test": _evaluate(point, data, folder)}})
            notify(f"{point.name} finished")
    index = json.loads((folder / "grid.json").read_text(encoding="utf-8"))
    index["runs"] += [{"name": point.name, "method": point.method, "settings": point.settings()} for point in points]
    write_text(folder / "grid.json", json.dumps(index, indent=2))


def reference_points(grid: Grid, folder: Path) -> list[ReferencePoint]:
    """Return the floors, the ceiling of the features, and the ceilings of the runs that are finished in ``folder``."""
    cells = {(run.config.n_bits, run.config.train.seed): run for run in grid.runs}
    lengths = {run.config.n_bits: run for run in reversed(grid.runs)}
    finished = [run for run in grid.runs if (folder / "runs" / run.name / "result.json").exists()]
    return [
        *(ReferencePoint(run, "floor", method) for method in FLOORS for run in cells.values()),
        *(ReferencePoint(run, "ceiling", FEATURES) for run in lengths.values()),
        *(ReferencePoint(run, "ceiling", run.method + UNQUANTISED) for run in finished),
    ]


def fixed_features(config: RunConfig, records: Records, train: NDArray[np.int64]) -> dict[str, Array]:
    """Return what the model of a configuration reads that no training changes, ``(n, d)`` a modality.

    These are the outputs of an encoder without trained parameters (frozen backbone, standardised features). Where the
    encoder is trained there are none, and its inputs stand in: images of 16 × 16 pixels, texts as counts of the 1000
    most frequent words of the training rows.
    """
    model = create_model(config, records.take(train)).to(pick_device(config.train.device))
    features = feature_records(model, records, config.train, no_stage_progress)
    feature_model = model.on_features()
    return {modality: _fixed(feature_model, features, modality, train) for modality in feature_model.modalities}


def read_data(config: RunConfig) -> ReferenceData:
    """Read the data set of a configuration, split it, and compute its fixed features."""
    records = load_collection(config.sources).records
    splits = make_splits(config.split, records)
    features = fixed_features(config, records, splits.train)
    return ReferenceData(records, splits, features, one_space=config.model_name == "cliphash")


def _evaluate(point: ReferencePoint, data: ReferenceData, folder: Path) -> Mapping[str, Evaluated]:
    config = point.run.config
    if point.kind == "floor":
        train = data.part(data.splits.train)
        maps = FLOORS[point.method](train, config.n_bits, config.train.seed, data.one_space)
        query, database = (
            _codes(maps, data, rows, config.n_bits) for rows in (data.splits.query, data.splits.retrieval)
        )
        tasks, histograms = evaluate_sets(query, database, point.name, config.evaluate.cutoffs)
        return {task: (histograms[task].average_precision(), scores) for task, scores in tasks.items()}
    if point.method == FEATURES:
        return _feature_cosines(data, config)
    with trusting(config.python_names):
        outputs = run_outputs(load_model(folder / "runs" / point.run.name), config, data.records)
    return _cosines(outputs, data, config)


def _codes(maps: Mapping[str, LinearMap], data: ReferenceData, rows: NDArray[np.int64], n_bits: int) -> CodeSet:
    codes = {modality: pack(binarize(maps[modality](values))) for modality, values in data.part(rows).items()}
    labels = data.records.labels[rows]
    return CodeSet([data.records.ids[i] for i in rows], codes, labels, n_bits, data.records.label_names)


def _feature_cosines(data: ReferenceData, config: RunConfig) -> dict[str, RankingEvaluation]:
    """Rank by the features as they are; across modalities that share no space, by their canonical variates."""
    evaluations = _cosines(data.features, data, config, across=data.one_space)
    if not data.one_space:
        train = data.part(data.splits.train)
        maps = cca(train, min(values.shape[1] for values in train.values()))
        common = {modality: maps[modality](values) for modality, values in data.features.items()}
        across = _cosines(common, data, config)
        evaluations |= {task: across[task] for task in across if task not in evaluations}
    return evaluations


def _cosines(
    vectors: Views, data: ReferenceData, config: RunConfig, across: bool = True
) -> dict[str, RankingEvaluation]:
    """Rank by cosine in every task; without ``across`` in those within a modality."""
    splits, labels = data.splits, data.records.labels
    groups = [list(vectors)] if across else [[modality] for modality in vectors]
    evaluations: dict[str, RankingEvaluation] = {}
    for modalities in groups:
        query, database = (
            {modality: vectors[modality][rows] for modality in modalities} for rows in (splits.query, splits.retrieval)
        )
        evaluations |= evaluate_cosines(
            query, database, labels[splits.query], labels[splits.retrieval], config.evaluate.cutoffs
        )
    return evaluations


def run_outputs(model: HashModel, config: RunConfig, records: Records) -> dict[str, Array]:
    """Return the real-valued outputs of a trained model, ``(n, k)`` a modality."""
    model.to(pick_device(config.train.device))
    features = feature_records(model, records, config.train, no_stage_progress)
    feature_model = model.on_features()
    inputs = {name: prepare_inputs(feature_model, features, name) for name in feature_model.modalities}
    outputs = feature_model.outputs_prepared(inputs)
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
