"""What the experiments start from: ready base configurations, the paper's code lengths and losses."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from channelhash.config import read_sections
from channelhash.errors import InputError
from channelhash.runs.presets import preset_path
from channelhash.utils.typed_settings import apply_override, pick

#: A configuration as nested keys: section -> key -> value.
Sections = Mapping[str, Mapping[str, Any]]
#: The losses that a grid compares: method -> section ``loss`` of the configuration.
Losses = Mapping[str, Mapping[str, Any]]

#: Code lengths of the paper's tables.
PAPER_BITS = (16, 32, 64, 128)

#: The paper's three losses, and SCH with the quantisation term that DSCH has (§ 5).
METHODS: dict[str, dict[str, Any]] = {
    "TDSRDH": {"name": "tdsrdh"},
    "SCH": {"name": "sch", "kappa_q": 0.0},
    "SCH + quantisation": {"name": "sch", "kappa_q": 0.01},
    "DSCH": {"name": "dsch", "kappa_q": 0.01},
}

#: The paper's collections, by their kind.
PAPER_KINDS = ("mirflickr25k", "nuswide")
#: The paper's models -> the preset that trains each as the protocol says.
PAPER_PRESETS = {"tdsrdh": "paper", "cliphash": "paper-cliphash"}


def paper_configuration(model: str, kind: str) -> dict[str, dict[str, Any]]:
    """Read data, model and training of one of the paper's models from its preset, for one of the paper's collections.

    >>> paper_configuration("cliphash", "nuswide")["model"]["preprocess"]
    'paper'
    """
    sections = read_sections(preset_path(PAPER_PRESETS[model]))
    return {"data": {"kind": kind, "root": kind}, "model": sections["model"], "train": sections["train"]}


#: Name for ``--dataset`` -> base configuration.
DATASETS: dict[str, dict[str, dict[str, Any]]] = {
    "synthetic": {
        "data": {"kind": "synthetic", "root": "data", "n_images": 3000, "queries": 400, "train": 1800},
        "model": {"name": "small"},
        "train": {"epochs": 30, "batch_size": 64, "learning_rate": 1e-3, "validate_every": 10},
    },
    **{kind: paper_configuration("tdsrdh", kind) for kind in PAPER_KINDS},
}

#: What ``--quick`` changes: everything can be seen to work in minutes, no score is worth quoting.
QUICK: dict[str, dict[str, Any]] = {
    "data": {"n_images": 600, "queries": 100, "train": 300},
    "train": {"epochs": 4, "validate_every": 2},
}


def base_configuration(
    base: str | Path, folder: Path, data: Path | None = None, overrides: Sequence[str] = (), quick: bool = False
) -> Sections:
    """Read the configuration that all runs of a grid start from.

    Args:
        base: key of `DATASETS`, or a configuration file.
        folder: the grid's folder; drawn images go below it.
        data: folder or file of the data instead of the base configuration's.
        overrides: ``"section.key=value"`` for all runs.
        quick: apply `QUICK`; for drawn images only.

    Raises:
        InputError: ``base`` or an override is unknown, or ``quick`` is set for another collection.

    >>> base_configuration("synthetic", Path("grid"), overrides=["train.epochs=5"])["train"]["epochs"]
    5
    """
    source = read_sections(base) if isinstance(base, Path) else pick(DATASETS, base, "--dataset")
    sections: dict[str, dict[str, Any]] = {section: dict(keys) for section, keys in source.items()}
    kind = sections.get("data", {}).get("kind")
    if quick:
        if kind != "synthetic":
            raise InputError("--quick: goes with --dataset synthetic; elsewhere lower train.epochs with --set")
        for section, keys in QUICK.items():
            sections[section] = {**sections.get(section, {}), **keys}
    if base == "synthetic" and data is None:
        data = folder / "data"
    if data is not None:
        key = "root" if kind in ("synthetic", *PAPER_KINDS) else "path"
        sections["data"][key] = str(data)
    for override in overrides:
        apply_override(sections, override)
    return sections
