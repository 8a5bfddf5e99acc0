"""Train a model from a configuration into a run's folder, anew or further on new items; or estimate
what that takes.

A run that extends another keeps the codes of its old items valid. In its collection the rows of the
extended run come first, then the new ones (`data.collection`).
"""

import inspect
import json
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from channelhash.codes import CodeSet, unpack
from channelhash.config import (
    ExtendSettings,
    RunConfig,
    make_config,
    read_config,
    read_run_config,
    read_sections,
)
from channelhash.data.collection import Collection, labels_as
from channelhash.data.records import Items, Records
from channelhash.data.splits import Rows, Splits
from channelhash.errors import InputError, naming
from channelhash.losses import HashLoss, make_loss, resolve_loss
from channelhash.losses.incremental import ExtensionLoss
from channelhash.models import HashModel, load_hash_model, resolve_model
from channelhash.models.hash_model import encode_records
from channelhash.presets import data_kind
from channelhash.runs.folder import (
    Run,
    check_contents,
    check_evaluable,
    claim_folder,
    describe_run,
    keep_contents,
    keep_splits,
    read_run,
    save_model,
)
from channelhash.training.distributed import local_device, rank, wait_for_all
from channelhash.training.inputs import (
    Source,
    TrainingSet,
    epoch_steps,
    feature_mode,
    memory_batches,
    raw_source,
)
from channelhash.training.steps import Steps
from channelhash.training.trainer import Trainee, training_images
from channelhash.utils.files import write_text
from channelhash.utils.machine import peak_bytes
from channelhash.utils.progress import Progress, StageProgress, no_stage_progress
from channelhash.utils.seeds import derive_seed, generator
from channelhash.utils.typed_settings import apply_overrides, check_kind, trusting


def train(
    config: str | Path | Mapping[str, Mapping[str, Any]],
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    resume: bool = False,
    trust_code: bool = False,
    progress: StageProgress = no_stage_progress,
) -> Run:
    """Train a model and evaluate it on the validation split, as ``channelhash train`` does.

    Args:
        config: a YAML file, or its sections ``data``, ``model``, ``loss``, ``train`` … as a
            mapping.
        overrides: each ``"section.key=value"``, like the option ``--set``.
        out: the run's folder; ``runs/<name of the file>`` by default.
        resume: go on with a run that was interrupted. A finished run is left as it is.
        trust_code: consent to code of this machine (``python:module:NAME``) that only the folder of
            a run that is extended names. Code that ``config`` names is your own word.
        progress: stage -> its callback.

    Raises:
        InputError: the configuration, the overrides or the data cannot be used, the folder is in
            use or holds another run, ``out`` is missing where ``config`` is a mapping, or an
            extended run names code that is not trusted.
        JobError: the loss became NaN, or memory ran out.

    Example::

        run = ch.train("configs/table.yaml", ["data.path=items.csv", "train.epochs=30"])
        run.validation["text->image"], run.load_model()
    """
    if isinstance(overrides, str):
        raise InputError(
            f"overrides: {overrides!r} is one string; give a list, such as ['train.epochs=3']"
        )
    if isinstance(config, Mapping):
        if out is None:
            raise InputError(
                "out: a configuration that is no file has no name to take; name the run's folder"
            )
        sections = {name: dict(keys) for name, keys in config.items()}
        apply_overrides(sections, *overrides)
        resolved = make_config(sections)
    else:
        resolved = read_config(Path(config), overrides)
        out = out or Path("runs") / Path(config).stem
    with trusting(trust_code):
        return start_run(resolved, Path(out), resume, progress)


def start_run(
    config: RunConfig,
    folder: Path,
    resume: bool = False,
    progress: StageProgress = no_stage_progress,
) -> Run:
    """Do what `train` does, for a checked configuration.

    The folder gets ``config.yaml``, ``data.json`` (hashes of what it is made from),
    ``splits.json``, ``environment.json``, ``log.jsonl``, ``checkpoints/``, TensorBoard events and,
    at the end, ``model/`` (the last epoch's weights, the primary result of ``protocol.md`` § 6).
    """
    with trusting(config.python_names), claim_folder(config, folder, resume) as is_new:
        if is_new:
            save_model(_train(config, folder, progress), config, folder)
        else:
            check_contents(folder, config)
    return read_run(folder)


def _train(config: RunConfig, folder: Path, progress: StageProgress) -> HashModel:
    collection = Collection.load(config.sources)
    keep_contents(folder, config, collection)
    if config.extend is not None:
        extended = config.extend.run
        old = Collection(collection.parts[:-1])
        check_contents(extended, read_run_config(extended), old)
    records = collection.records
    settings = config.split.model_dump(mode="json")
    splits = keep_splits(folder, records, lambda: _draw_splits(config, collection), settings)
    describe_run(config, folder, records.problems)
    check_evaluable(records, splits)
    loss = create_loss(config, len(records.label_names))
    _check_pairs(config, records)
    if config.extend is not None:
        return _extend(config, collection, splits, loss, folder, progress)
    model = create_model(config, records.take(splits.train))
    labels = torch.from_numpy(
        _noisy_labels(records.labels[splits.train], config.train.label_noise, config.train.seed)
    )
    trainee = Trainee.prepare(model, collection, splits.train, config.train, progress)
    del model  # and with it a frozen backbone, whose features are computed
    return trainee.fit(loss, labels, splits, folder, progress)


def _draw_splits(config: RunConfig, collection: Collection) -> Splits:
    """Return the splits of a run; in an extension the old items keep theirs."""
    new = config.split.draw(collection.new)
    if config.extend is None:
        return new
    old = Collection(collection.parts[:-1]).records
    return Splits.load(config.extend.run / "splits.json", old).join(new, len(old))


def _noisy_labels(labels: NDArray[np.bool_], share: float, seed: int) -> NDArray[np.bool_]:
    """Give a share of the rows, drawn by ``seed``, the labels of another row each.

    How frequent labels are, and which occur together, stays the same up to chance. Some rows get
    labels equal to their own.

    >>> labels = np.eye(4, dtype=bool)
    >>> int((_noisy_labels(labels, 0.5, seed=0) != labels).any(axis=1).sum())
    2
    """
    n = len(labels)
    random = generator(seed, "label noise")
    chosen = random.permutation(n)[: round(share * n)]
    others = (chosen + random.integers(1, max(n, 2), size=len(chosen))) % n
    result = labels.copy()
    result[chosen] = labels[others]
    return result


def extension_config(
    run: Path, data: Path, root: Path | None = None, overrides: Sequence[str] = ()
) -> RunConfig:
    """Return the configuration that extends ``run`` by the items of ``data``, all else being as in
    ``run``.
    """
    extended = read_run_config(run)
    if resolve_loss(extended.loss_name).needs_teacher:
        raise InputError(
            f"{run}: a student, which learned from a teacher and not from labels; extend the "
            "teacher (named in its distillation.json), and distill that extension"
        )
    sections: dict[str, dict[str, Any]] = extended.sections()
    if data.suffix.lower() in (".yaml", ".yml"):
        sections["data"] = dict(read_sections(data).get("data", {}))
    else:
        sections["data"] = {"kind": data_kind(data), "path": str(data)}
    if root is not None:
        sections["data"]["root"] = str(root)
    sections["extend"] = {"run": str(run)}
    apply_overrides(sections, *overrides)
    return make_config(sections)


#: In a run's folder: the codes of the old items, as the extended run made them, in the order of
#: their rows in R.
_STORED = Path("codes") / "stored.parquet"


def stored_codes(folder: Path) -> CodeSet | None:
    """Return the codes of old items that stay as they are in a run, or None in one that extends no
    other.

    >>> stored_codes(Path("no run")) is None
    True
    """
    return CodeSet.load(folder / _STORED) if (folder / _STORED).exists() else None


def database_codes(
    stored: CodeSet | None, retrieval: Rows, rows: Rows, encode: Callable[[Rows], CodeSet]
) -> CodeSet:
    """Return codes of some rows of R: the stored ones of old items, and newly encoded ones of the
    others.

    >>> codes = CodeSet(["old", "new"], {"text": np.array([[1], [2]], np.uint8)}, np.ones((2, 1), bool), 8, ("a",))
    >>> stored = CodeSet(["old"], {"text": np.array([[7]], np.uint8)}, np.ones((1, 1), bool), 8, ("a",))
    >>> database_codes(stored, np.arange(2), np.arange(2), codes.take).codes["text"].tolist()
    [[7], [2]]
    """
    if stored is None:
        return encode(rows)
    fixed = np.isin(rows, retrieval[: len(stored)])
    encoded = encode(rows[~fixed])
    old = stored.take(np.searchsorted(retrieval, rows[fixed]))
    assert old.labels is not None  # an extension has labels
    # One set for the model that was trained to read both, over the labels of both.
    labels = labels_as(old.labels, old.label_names, encoded.label_names)
    return CodeSet.join(
        [replace(old, labels=labels, label_names=encoded.label_names, model=encoded.model), encoded]
    )


def _store_codes(trainee: Trainee, rows: Rows, run: Path, folder: Path, progress: Progress) -> None:
    """Write the codes of the old items into a new run's folder, unless they are there.

    Codes that the extended run has written for its retrieval set are taken over; else its model
    computes them now.
    """
    model = trainee.feature_model
    made_by = model.extends[-1]
    if (stored := stored_codes(folder)) is not None:
        if stored.model != made_by:
            raise InputError(
                f"{folder / _STORED}: {run} has been trained anew since; extend it into another "
                "--out"
            )
        return

    def encode(part: Rows) -> CodeSet:
        return encode_records(model, trainee.features.take(part), progress, made_by)

    old = trainee.features.take(rows)
    file = run / "codes" / "test-retrieval.parquet"
    if file.exists() and (saved := CodeSet.load(file)).model == made_by and saved.ids == old.ids:
        codes = saved.codes
    else:
        codes = database_codes(stored_codes(run), rows, rows, encode).codes
    texts, images = old.display_values("text"), old.display_values("image")
    CodeSet(old.ids, codes, old.labels, model.n_bits, old.label_names, texts, images, made_by).save(
        folder / _STORED
    )


#: In a run's folder: what was extended by what.
DESCRIPTION = "extension.json"


def _extend(
    config: RunConfig,
    collection: Collection,
    splits: Splits,
    loss: HashLoss,
    folder: Path,
    progress: StageProgress,
) -> HashModel:
    """Train the model of a run on new items, and return it."""
    settings = config.extend
    assert settings is not None  # the run extends another
    _check_extension(config, settings, loss, collection.new)
    rows = _training_rows(splits, collection.n_old, settings, config.train.seed)
    model = load_hash_model(settings.run)
    model.extends = (*model.extends, model.fingerprint())
    trainee = Trainee.prepare(model, collection, rows, config.train, progress)
    del model  # and with it a frozen backbone, whose features are computed
    if rank() == 0:
        old_rows = splits.retrieval[splits.retrieval < collection.n_old]
        _store_codes(trainee, old_rows, settings.run, folder, progress("encode old items"))
    wait_for_all()
    stored = CodeSet.load(folder / _STORED)
    trainee = trainee._replace(stored=stored)
    assert stored.labels is not None  # an extension has labels
    stored_rows = np.where(rows < collection.n_old, np.searchsorted(splits.retrieval, rows), -1)
    signs = {
        modality: torch.from_numpy(2 * unpack(codes, stored.n_bits).astype(np.int8) - 1)
        for modality, codes in stored.codes.items()
    }
    weights = settings.model_dump(include={"stored", "keep", "partners"})
    old = signs, torch.from_numpy(stored.labels), torch.from_numpy(stored_rows)
    joint_loss = ExtensionLoss(loss, *old, **weights, seed=config.train.seed)
    labels = torch.from_numpy(collection.records.labels[rows])
    model = trainee.fit(joint_loss, labels, splits, folder, progress)
    if rank() == 0:
        description = _description(settings, trainee, stored, collection, splits, rows)
        write_text(folder / DESCRIPTION, json.dumps(description, indent=2))
    return model


def _check_extension(
    config: RunConfig, extend: ExtendSettings, loss: HashLoss, new: Records
) -> None:
    """Check that a run can be extended by these new items with this loss."""
    extended = read_run_config(extend.run)
    if (extended.model_name, extended.n_bits, extended.model) != (
        config.model_name,
        config.n_bits,
        config.model,
    ):
        raise InputError(
            f"model: an extension has the model of {extend.run}; leave the section model as it is "
            "there"
        )
    if loss.channels is None:
        raise InputError(
            f"loss.name: {config.loss_name!r} has no channels (bounds) to place new items in; "
            "extend with dsch, sch, bsch or rsch"
        )
    if not new.labels.any():
        raise InputError(
            "the new items have no labels; nothing says which of the old ones they are like"
        )


def _training_rows(splits: Splits, n_old: int, settings: ExtendSettings, seed: int) -> Rows:
    """Return the rows to train on: all new ones of T, and a draw of the old ones.

    >>> splits = Splits(*(np.array(rows) for rows in ([0], [1, 2, 3], [1, 2, 3], [], [])))
    >>> _training_rows(splits, 3, ExtendSettings(run=Path("old"), replay=0), seed=0).tolist()
    [3]
    """
    old = splits.train[splits.train < n_old]
    new = splits.train[splits.train >= n_old]
    if not len(new):
        raise InputError("data.train is 0 for the new items; an extension trains on some of them")
    count = min(len(old), len(new) if settings.replay is None else settings.replay)
    return np.concatenate(
        [np.sort(generator(seed, "replay").choice(old, count, replace=False)), new]
    )


def _description(
    settings: ExtendSettings,
    trainee: Trainee,
    stored: CodeSet,
    collection: Collection,
    splits: Splits,
    rows: Rows,
) -> dict[str, Any]:
    """Return what ``extension.json`` holds: what was extended, what was fixed, and how far the old
    items have moved.
    """
    n_old, new = collection.n_old, collection.new
    old_names = list(
        dict.fromkeys(name for part in collection.parts[:-1] for name in part.label_names)
    )
    return {
        "run": str(settings.run),
        "run_model": trainee.feature_model.extends[-1],
        "model": trainee.feature_model.fingerprint(),
        "stored_codes": {"file": str(_STORED), "items": len(stored)},
        "items": {"old": n_old, "new": len(new)},
        "training_rows": {"old": int((rows < n_old).sum()), "new": int((rows >= n_old).sum())},
        "labels": {
            "old": old_names,
            "new": [name for name in new.label_names if name not in old_names],
        },
        "settings": settings.model_dump(mode="json", exclude={"run"}),
        "bits_moved": _bits_moved(trainee, stored, splits),
    }


def _bits_moved(trainee: Trainee, stored: CodeSet, splits: Splits) -> dict[str, float]:
    """Return modality -> mean number of bits in which the model now encodes old items differently.

    Counted are up to 2000 old items that were not trained on; the result is empty if all were.
    """
    untrained = np.setdiff1d(splits.retrieval[: len(stored)], splits.train)[:2000]
    if not len(untrained):
        return {}
    current = encode_records(
        trainee.feature_model, trainee.features.take(untrained), fingerprint=""
    ).codes
    before = stored.take(np.searchsorted(splits.retrieval, untrained)).codes
    moved = {
        name: np.bitwise_count(codes ^ before[name]).sum(axis=1) for name, codes in current.items()
    }
    return {modality: round(float(bits.mean()), 3) for modality, bits in moved.items()}


def plan_run(config: RunConfig) -> dict[str, Any]:
    """Return what `train.start_run` would take, without writing anything.

    A model encodes a few real training rows and takes two steps on a batch of them; then it is
    discarded.
    """
    if config.extend is not None:
        raise InputError(
            "--dry-run: plans a training from the start, this configuration extends a run; leave "
            "it out"
        )
    records = Collection.load(config.sources).records
    settings = config.train
    splits = config.split.draw(records)
    check_evaluable(records, splits)
    _check_pairs(config, records)
    train = records.take(splits.train)
    images = training_images(train, settings)
    model = create_model(config, train).to(local_device(settings.device))
    parameters = {"trainable": 0, "frozen": 0}
    for values in model.parameters():
        parameters["trainable" if values.requires_grad else "frozen"] += values.numel()
    mode = feature_mode(model, settings)
    batch = train.take(np.arange(settings.batch_size))
    fixed = {
        name: frozen
        for name in model.modalities
        if mode != "online" and (frozen := model.branch(name).fixed)
    }
    features = 0.0
    sources = dict[str, Source]()
    for name in model.modalities:
        if name not in fixed:
            sources[name] = raw_source(model, name, batch, len(train), settings)
            continue
        # Few take long enough on a CPU; a GPU has to be busy.
        items = batch.items[name][: 64 if model.device.type == "cuda" else 8]

        def encode(name: str = name, items: Items = items) -> None:
            fixed[name](model.prepare(name, items).to(model.device))

        draws = settings.epochs * len(train) if mode == "bank" and name == "image" else 0
        features += _seconds(encode, model.device) / len(items) * (len(records) + draws)
        sources[name] = partial(
            memory_batches, torch.randn(len(batch), fixed[name].n_features), settings
        )
    trained = (model.on_features() if fixed else model).to(model.device).train()
    loss = create_loss(config, batch.labels.shape[1])
    steps = Steps(trained, loss, TrainingSet(sources, torch.from_numpy(batch.labels)), settings)
    epoch = settings.epochs // 2  # which is augmented, if any is
    step = _seconds(lambda: steps.run(steps.batches(epoch)), model.device) / max(
        1, len(steps.anchors)
    )
    n_steps = (
        len(list(epoch_steps(len(train), settings, 0, steps.anchors, images))) * settings.epochs
    )
    times = {
        "step": step,
        "features": features,
        "training": step * n_steps,
        "total": features + step * n_steps,
    }
    peak = (
        torch.cuda.max_memory_allocated(model.device)
        if model.device.type == "cuda"
        else peak_bytes()
    )
    return {
        "parameters": parameters,
        "steps": n_steps,
        "epochs": settings.epochs,
        "rows": splits.counts(),
        "device": str(model.device),
        "features": mode,
        "peak_mb": None if peak is None else round(peak / 1e6, 1),
        "seconds": {name: round(value, 4) for name, value in times.items()},
    }


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return how long ``work`` takes: the better one of two times, after one that warms up."""

    def finish() -> None:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return min(timeit.repeat(finish, repeat=3, number=1)[1:])


def create_model(config: RunConfig, train_records: Records) -> HashModel:
    """Return the untrained model of a configuration; its weights are drawn from ``train.seed``.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, np.ones((2, 1), dtype=bool), ("dog",))
    >>> create_model(demo_config(Path("demo"), "dsch", quick=True), records).modalities
    ('text',)
    """
    torch.manual_seed(derive_seed(config.train.seed, "weights"))
    kind = resolve_model(config.model_name)
    name = f"model.name {config.model_name}"
    model = check_kind(
        kind.create(train_records, config.n_bits, **vars(config.model)),
        HashModel,
        f"{name}: create",
    )
    with naming(f"{name}: architecture has to be JSON, and the arguments of build", TypeError):
        inspect.signature(kind.build).bind(**json.loads(json.dumps(model.architecture)))
    model.name = config.model_name  # under which a saved model is built again, also one's own
    model.set_precision(config.train.precision)
    return model


def create_loss(config: RunConfig, n_labels: int) -> HashLoss:
    """Return the loss of a configuration for ``n_labels`` labels; its parameters are drawn from
    ``train.seed``.

    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> type(create_loss(demo_config(Path("demo"), "tdsrdh", quick=True), n_labels=3)).__name__
    'TDSRDHLoss'
    """
    if resolve_loss(config.loss_name).needs_teacher:
        raise InputError(
            f"loss.name: {config.loss_name!r} takes a teacher, not labels; use `channelhash "
            "distill`"
        )
    torch.manual_seed(derive_seed(config.train.seed, "loss"))
    return make_loss(
        config.loss_name, config.n_bits, n_labels, **vars(config.loss) | vars(config.terms)
    )


def _check_pairs(config: RunConfig, records: Records) -> None:
    """Check that records in one modality are not to be learned from pairs.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, np.ones((2, 1), dtype=bool), ("dog",))
    >>> _check_pairs(demo_config(Path("demo"), "dsch", quick=True), records)
    """
    if len(records.items) > 1:
        return
    only = next(iter(records.items))
    terms = config.terms.model_dump()
    if config.loss_name == "contrastive" or terms["contrastive"] or terms["pairs"]:
        key = (
            "name: contrastive"
            if config.loss_name == "contrastive"
            else "pairs"
            if terms["pairs"]
            else "contrastive"
        )
        raise InputError(
            f"loss.{key}: learns from pairs of an image and a text, and there are only {only}s"
        )
    if not records.label_names:
        raise InputError(
            f"the data has only {only}s and no labels: nothing says which are alike; add labels or "
            "pairs"
        )
