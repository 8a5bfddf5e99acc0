"""A run that extends another: its rows, the stored codes that stay as they are, and the loss that keeps them valid.

In the run's collection the rows of the extended run come first, then the new ones (`data.joining`).
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from channelhash.codes import PackedCodes, unpack
from channelhash.codes.code_set import CodeSet, joined
from channelhash.config import (
    ExtendSettings,
    RunConfig,
    apply_override,
    make_config,
    read_run_config,
    read_sections,
)
from channelhash.data.collection import Collection
from channelhash.data.concat import labels_as
from channelhash.data.records import Records
from channelhash.data.splits import Rows, Splits
from channelhash.errors import InputError
from channelhash.losses import TEACHER_LOSSES
from channelhash.losses.auxiliary import channels_of
from channelhash.losses.incremental import ExtensionLoss
from channelhash.models import HashModel, load_model
from channelhash.models.encode_records import encode_records
from channelhash.utils.array_files import ENDINGS as ARRAY_ENDINGS
from channelhash.utils.files import write_text
from channelhash.utils.progress import Progress
from channelhash.utils.seeds import generator

#: In a run's folder: the codes of the old items, as the extended run made them, in the order of their rows in R.
STORED = Path("codes") / "stored.parquet"
#: In a run's folder: what was extended by what.
DESCRIPTION = "extension.json"

# Old rows that were not trained on, of which it is counted how far they have moved.
_MOVED_ROWS = 2000


def extension_config(
    run: Path,
    data: Path,
    root: Path | None = None,
    codes: Path | None = None,
    overrides: Sequence[str] = (),
) -> RunConfig:
    """The configuration that extends ``run`` by the items of ``data``: model, loss and training are those of the run.

    Args:
        run: folder of a finished run.
        data: table or file of features with labels, or a YAML configuration, whose section ``data`` is read.
        root: for a table, the folder of its pictures.
        codes: see `config.ExtendSettings`.
        overrides: each ``"section.key=value"``.

    Raises:
        InputError: there is no such run or file, the run is a student's, or as `config.make_config`.
    """
    extended = read_run_config(run)
    if extended.loss_name in TEACHER_LOSSES:
        raise InputError(
            f"{run}: a student, which learned from a teacher and not from labels; extend the teacher (named in its "
            "distillation.json), and distill that extension"
        )
    base: dict[str, dict[str, Any]] = yaml.safe_load(extended.to_yaml())
    ending = data.suffix.lower()
    if ending in (".yaml", ".yml"):
        base["data"] = dict(read_sections(data).get("data", {}))
    elif not data.is_file():
        what = "a folder has no labels" if data.is_dir() else "no such file"
        raise InputError(f"--data {data}: {what}; name a table or a file of features with labels, or a configuration")
    else:
        base["data"] = {"kind": "features" if ending in ARRAY_ENDINGS else "table", "path": str(data)}
    if root is not None:
        base["data"]["root"] = str(root)
    base["extend"] = {"run": str(run)} | ({} if codes is None else {"codes": str(codes)})
    for override in overrides:
        apply_override(base, override)
    return make_config(base)


def check_extension(config: RunConfig, loss: nn.Module, new: Records) -> None:
    """Whether a run can be extended by these new items with this loss.

    Args:
        config: with a section ``extend``.
        loss: the loss of ``config``.
        new: the new items.

    Raises:
        InputError: says what does not fit.
    """
    assert config.extend is not None
    folder, base = config.extend.run, read_run_config(config.extend.run)
    if (base.model_name, base.n_bits, base.model) != (config.model_name, config.n_bits, config.model):
        raise InputError(f"model: an extension has the model of {folder}; leave the section model as it is there")
    if channels_of(loss) is None:
        raise InputError(
            f"loss.name: {config.loss_name!r} has no channels (bounds) to place new items in; extend with dsch, "
            "sch, bsch or rsch"
        )
    if config.train.mix_images:
        raise InputError(
            "train.mix_images: a blend of old and new images is neither, and has no stored code; set it to 0"
        )
    if not new.labels.any():
        raise InputError("the new items have no labels; nothing says which of the old ones they are like")


def extended_model(extend: ExtendSettings) -> HashModel:
    """The model of the run that is extended; from here on it says so, see `HashModel.extends`."""
    model = load_model(extend.run)
    model.extends = (*model.extends, model.fingerprint())
    return model


def training_rows(splits: Splits, n_old: int, extend: ExtendSettings, seed: int) -> Rows:
    """The rows that are trained on: all new ones of T, and a draw of the old ones.

    Raises:
        InputError: there is no new row in T.
    """
    old, new = splits.train[splits.train < n_old], splits.train[splits.train >= n_old]
    if not len(new):
        raise InputError("data.train is 0 for the new items; an extension trains on some of them")
    count = min(len(old), len(new) if extend.replay is None else extend.replay)
    drawn = generator(seed, "replay").choice(old, count, replace=False)
    return np.concatenate([np.sort(drawn), new])


def stored_codes(folder: Path) -> CodeSet | None:
    """The codes of old items that stay as they are in a run; None in one that extends no other."""
    return CodeSet.load(folder / STORED) if (folder / STORED).exists() else None


def database_codes(stored: CodeSet | None, retrieval: Rows, part: Rows, encode: Callable[[Rows], CodeSet]) -> CodeSet:
    """Codes of some rows of R: the stored ones of old items, and of the others what the model makes of them now.

    Args:
        stored: see `stored_codes`; its items are the first rows of R.
        retrieval: R, sorted.
        part: the rows that are asked for, sorted.
        encode: the codes of rows.
    """
    if stored is None:
        return encode(part)
    fixed = np.isin(part, retrieval[: len(stored)])
    encoded = encode(part[~fixed])
    kept = stored.take(np.searchsorted(retrieval, part[fixed]))
    assert kept.labels is not None  # an extension has labels
    # One set for the model that reads both, which was trained to, over the labels of both.
    same = {
        "model": encoded.model,
        "labels": labels_as(kept.labels, kept.label_names, encoded.label_names),
        "label_names": encoded.label_names,
    }
    return joined([CodeSet(**{**vars(kept), **same}), encoded])


def store_codes(
    config: RunConfig,
    folder: Path,
    feature_model: HashModel,
    records: Records,
    features: Records,
    splits: Splits,
    n_old: int,
    progress: Progress,
) -> None:
    """Write the codes of the old items into a new run's folder: those that the extended run has written for its
    retrieval set, or else its model makes them now. What is there already stays.

    Args:
        config: of the new run.
        folder: the new run's.
        feature_model: the extended run's model, on features.
        records: old and new items.
        features: the same rows as ``feature_model`` takes them.
        splits: of ``records``.
        n_old: number of old items.
        progress: called with (done, n).

    Raises:
        InputError: the codes that are there are those of another model.
    """
    assert config.extend is not None
    base, made_by = config.extend.run, feature_model.extends[-1]
    if (there := stored_codes(folder)) is not None:
        if there.model != made_by:
            raise InputError(f"{folder / STORED}: {base} has been trained anew since; extend it into another --out")
        return
    rows = splits.retrieval[splits.retrieval < n_old]
    old, written = records.take(rows), base / "codes" / "test-retrieval.parquet"
    if written.exists() and (saved := CodeSet.load(written)).model == made_by and saved.ids == old.ids:
        codes = saved.codes
    else:
        codes = database_codes(
            stored_codes(base),
            rows,
            rows,
            lambda part: encode_rows(feature_model, records, features, part, progress, made_by),
        ).codes
    CodeSet(
        old.ids,
        codes,
        old.labels,
        feature_model.n_bits,
        old.label_names,
        old.display_values("text"),
        old.display_values("image"),
        made_by,
    ).save(folder / STORED)


def encode_rows(
    feature_model: HashModel,
    records: Records,
    features: Records,
    rows: Rows,
    progress: Progress | None,
    fingerprint: str,
) -> CodeSet:
    """Codes of some rows of a collection; ``features`` are the same rows as ``feature_model`` takes them."""
    found = {name: values[rows] for name, values in features.items.items() if isinstance(values, np.ndarray)}
    return encode_records(feature_model, records.take(rows), progress, fingerprint, found)


def extension_loss(
    config: RunConfig,
    own: nn.Module,
    modalities: tuple[str, ...],
    stored: CodeSet,
    records: Records,
    splits: Splits,
    rows: Rows,
    n_old: int,
) -> ExtensionLoss:
    """The loss of an extension; see `losses.incremental.ExtensionLoss`.

    Args:
        config: of the new run.
        own: its loss by itself.
        modalities: the model's.
        stored: see `stored_codes`.
        records: old and new items.
        splits: of ``records``.
        rows: see `training_rows`.
        n_old: number of old items.

    Raises:
        InputError: the file of codes does not fit.
    """
    assert config.extend is not None
    partners = (
        stored if config.extend.codes is None else _read_partners(config, stored.model, modalities, records, n_old)
    )
    assert partners.labels is not None  # both have some
    is_new = rows >= n_old
    place = np.searchsorted(splits.retrieval, np.where(is_new, splits.retrieval[0], rows))
    return ExtensionLoss(
        own,
        {modality: _signs(stored.codes[modality], stored.n_bits)[place] for modality in modalities},
        torch.from_numpy(is_new),
        {modality: _signs(partners.codes[modality], stored.n_bits) for modality in modalities},
        torch.from_numpy(partners.labels),
        weight_stored=config.extend.stored,
        weight_keep=config.extend.keep,
        pairs=config.extend.pairs,
        partners=config.extend.partners,
        seed=config.train.seed,
    )


def _signs(packed: PackedCodes, n_bits: int) -> Tensor:
    return torch.from_numpy(2 * unpack(packed, n_bits).astype(np.int8) - 1)


def _read_partners(
    config: RunConfig, made_by: str, modalities: tuple[str, ...], records: Records, n_old: int
) -> CodeSet:
    """The codes of a file that new items are placed against, with the labels of ``records``."""
    assert config.extend is not None
    path = config.extend.codes
    assert path is not None
    codes = CodeSet.load(path)
    if codes.n_bits != config.n_bits:
        raise InputError(f"{path}: codes of {codes.n_bits} bits, {config.extend.run} makes {config.n_bits}")
    if codes.model and codes.model != made_by:
        raise InputError(f"{path}: codes of another model than that of {config.extend.run}; encode them with it")
    if lacking := [modality for modality in modalities if modality not in codes.codes]:
        raise InputError(f"{path}: has no {lacking[0]} codes; encode both modalities of the items")
    if not len(codes) or codes.labels is None or not codes.label_names:
        raise InputError(f"{path}: has no items with named labels, by which new items could be placed; encode a table")
    if other := [name for name in codes.label_names if name not in records.label_names]:
        raise InputError(f"{path}: has the label {other[0]!r}, which neither the run nor the new items know")
    if again := set(codes.ids) & set(records.ids[n_old:]):
        raise InputError(f"{path}: holds the new item {min(again)!r} already; leave it out of the new items")
    labels = labels_as(codes.labels, codes.label_names, records.label_names)
    return CodeSet(codes.ids, codes.codes, labels, codes.n_bits, records.label_names, model=codes.model)


def describe_extension(
    config: RunConfig,
    folder: Path,
    feature_model: HashModel,
    collection: Collection,
    features: Records,
    splits: Splits,
    rows: Rows,
) -> None:
    """Write ``extension.json``: what was extended, what was fixed, and how far the old items have moved.

    Args:
        config: of the new run.
        folder: the new run's.
        feature_model: the trained model, on features.
        collection: of the new run.
        features: all of it, as ``feature_model`` takes them.
        splits: of all of them.
        rows: see `training_rows`.
    """
    assert config.extend is not None
    stored = CodeSet.load(folder / STORED)
    n_old, new = collection.n_old, collection.new
    old_names = list(dict.fromkeys(name for part in collection.parts[:-1] for name in part.label_names))
    description: dict[str, Any] = {
        "run": str(config.extend.run),
        "run_model": feature_model.extends[-1],
        "model": feature_model.fingerprint(),
        "stored_codes": {"file": str(STORED), "items": len(stored)},
        "placed_against": str(config.extend.codes or STORED),
        "items": {"old": n_old, "new": len(new)},
        "training_rows": {"old": int((rows < n_old).sum()), "new": int((rows >= n_old).sum())},
        "labels": {
            "old": old_names,
            "new": [name for name in new.label_names if name not in old_names],
        },
        "settings": config.extend.model_dump(mode="json", exclude={"run", "codes"}),
        "bits_moved": _bits_moved(feature_model, features, splits, stored),
    }
    write_text(folder / DESCRIPTION, json.dumps(description, indent=2))


def _bits_moved(feature_model: HashModel, features: Records, splits: Splits, stored: CodeSet) -> dict[str, float]:
    """Modality -> mean number of bits in which the model would now encode old items differently, of old items that
    were not trained on; empty if all were."""
    untrained = np.setdiff1d(splits.retrieval[: len(stored)], splits.train)[:_MOVED_ROWS]
    if not len(untrained):
        return {}
    now = encode_rows(feature_model, features, features, untrained, None, "").codes
    kept = stored.take(np.searchsorted(splits.retrieval, untrained)).codes
    return {modality: _mean_distance(now[modality], kept[modality]) for modality in now}


def _mean_distance(a: PackedCodes, b: PackedCodes) -> float:
    differing: NDArray[np.uint8] = np.bitwise_count(a ^ b)
    return round(float(differing.sum(axis=1).mean()), 3)
