"""The paper's grids, and the one that parts channel from quantisation, over any base configuration."""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from channelhash.config import RunConfig, apply_override, make_config, read_sections
from channelhash.errors import InputError
from channelhash.lab.experiments.runner import Grid, GridRun
from channelhash.models import MODELS
from channelhash.utils.typed_settings import pick

#: A configuration as nested keys: section -> key -> value.
Sections = Mapping[str, Mapping[str, Any]]

#: Code lengths of the paper's tables, and γ_w of its sweep.
PAPER_BITS = (16, 32, 64, 128)
PAPER_GAMMA_W = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0)

#: The losses that are compared: the paper's three, and SCH with the quantisation term that DSCH has (§ 5).
METHODS: dict[str, dict[str, Any]] = {
    "TDSRDH": {"name": "tdsrdh"},
    "SCH": {"name": "sch", "kappa_q": 0.0},
    "SCH + quantisation": {"name": "sch", "kappa_q": 0.01},
    "DSCH": {"name": "dsch", "kappa_q": 0.01},
}

#: The losses of `baselines`, each with its own paper's hyper-parameters, which are its defaults.
BASELINES: dict[str, dict[str, Any]] = {
    "DCMH / DPSH": {"name": "dcmh"},
    "HashNet": {"name": "hashnet"},
    "GreedyHash": {"name": "greedyhash"},
    "TALR": {"name": "talr"},
    "CSQ": {"name": "csq"},
    "IDHN": {"name": "idhn"},
    "OrthoHash": {"name": "orthohash"},
    "HyP² / DSPH": {"name": "hyp2"},
    "DNPH": {"name": "dnph"},
    "SCH, authors' code": {"name": "sch-original"},
    **METHODS,
    "BSCH": {"name": "bsch"},
    "RSCH": {"name": "rsch"},
}

#: Losses of channels; `channels` chooses the weights beside them. The first three differ in their bounds alone.
TUNED: dict[str, dict[str, Any]] = {
    "SCH, tuned": {"name": "sch"},
    "DSCH, tuned": {"name": "dsch"},
    "BSCH, tuned": {"name": "bsch"},
    "RSCH, tuned": {"name": "rsch"},
}

#: What `shapes` compares: channels beside the recommended weights, SCH's first.
SHAPES: dict[str, dict[str, Any]] = {
    "SCH": {"name": "sch"},
    "DSCH": {"name": "dsch"},
    "SCH, quantiles": {"name": "sch-shaped", "shape": "quantile"},
    "SCH, rare labels": {"name": "sch-shaped", "shape": "rarity"},
    "SCH, learned": {"name": "sch-shaped", "shape": "learned"},
}
#: The weights beside them: κ_q, and of the direct AP term over the code length (``docs/results/channels-compared.md``).
SHAPES_KAPPA_Q, SHAPES_PER_BIT = 0.3, 0.25

#: The option that only models with token ids have.
TEXT_AUGMENTATION = "text augmentation"
#: What `extensions` adds to DSCH, one change each: name -> section -> key -> value.
EXTENSIONS: dict[str, dict[str, dict[str, Any]]] = {
    TEXT_AUGMENTATION: {"train": {"mask_tokens": 0.15, "replace_tokens": 0.05}},
    "label-aware mixing": {"train": {"mix_images": 0.5}},
    "contrastive term": {"loss": {"contrastive": 0.1}},
    "hard-negative weighting": {"loss": {"hardness": 1.0}},
    "cross-batch memory": {"loss": {"memory": 1024}},
    "per-bit balance": {"loss": {"balance": 1.0}},
    "direct AP term": {"loss": {"average_precision": 8.0}},
}

_PAPER_TRAINING = {"augment": "progressive", "feature_dtype": "float16"}

#: name for ``--dataset`` -> base configuration of the grids.
DATASETS: dict[str, dict[str, dict[str, Any]]] = {
    "synthetic": {
        "data": {"kind": "synthetic", "root": "data", "n_images": 3000, "queries": 400, "train": 1800},
        "model": {"name": "small"},
        "train": {"epochs": 30, "batch_size": 64, "learning_rate": 1e-3, "validate_every": 10},
    },
    "mirflickr25k": {
        "data": {"kind": "mirflickr25k", "root": "mirflickr25k"},
        "model": {"name": "tdsrdh"},
        "train": dict(_PAPER_TRAINING),
    },
    "nuswide": {
        "data": {"kind": "nuswide", "root": "nuswide"},
        "model": {"name": "tdsrdh"},
        "train": dict(_PAPER_TRAINING),
    },
}

#: The method that `distillation` begins with.
TEACHER = "teacher"

#: What ``--quick`` changes: one look at everything in minutes, no figure to quote.
QUICK: dict[str, dict[str, Any]] = {
    "data": {"n_images": 600, "queries": 100, "train": 300},
    "train": {"epochs": 4, "validate_every": 2},
}


def losses(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """The paper's main table: each loss at each code length."""
    return [
        _run(base, method, loss, n_bits, seed)
        for method, loss in METHODS.items()
        for n_bits, seed in product(bits, seeds)
    ]


def gamma_w(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """The paper's sweep of DSCH's γ_w."""
    return [
        _run(base, f"γ_w = {value:g}", {**METHODS["DSCH"], "gamma_w": value}, n_bits, seed)
        for value in PAPER_GAMMA_W
        for n_bits, seed in product(bits, seeds)
    ]


def architectures(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """Both architectures with each loss. On drawn pictures, where weights of large models are of no use, their
    backbones are small, random and frozen."""
    small = base["data"]["kind"] == "synthetic"
    tiny = str(files("channelhash.lab.experiments") / "tiny-clip.json")
    models: dict[str, dict[str, Any]] = {
        "tdsrdh": {"backbone": "resnet18", "pretrained": None} if small else {},
        "cliphash": {"backbone": tiny, "pretrained": None} if small else {},
    }
    return [
        _run({**base, "model": {"name": model, **settings}}, method, loss, n_bits, seed, f"{model}-")
        for model, settings in models.items()
        for method, loss in METHODS.items()
        for n_bits, seed in product(bits, seeds)
    ]


def factorial(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """Channel × quantisation: SCH's and DSCH's bounds, each with κ_q of 0, 0.01 and 0.03; DSCH at 32 bits also with
    γ_w = 2."""
    runs = []
    for channel, kappa_q in product(("sch", "dsch"), (0.0, 0.01, 0.03)):
        loss = {"name": channel, "kappa_q": kappa_q}
        name = f"{channel.upper()}, κ_q = {kappa_q:g}"
        runs += [_run(base, name, loss, n_bits, seed) for n_bits, seed in product(bits, seeds)]
        if channel == "dsch" and 32 in bits:
            loss["gamma_w"] = 2.0
            runs += [_run(base, f"DSCH, γ_w = 2, κ_q = {kappa_q:g}", loss, 32, seed) for seed in seeds]
    return runs


def reranking(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """Codes of a loss without quantisation term and of one with it, whose answers are ranked again."""
    return [
        _run(base, method, METHODS[method], n_bits, seed)
        for method in ("SCH", "DSCH")
        for n_bits, seed in product(bits, seeds)
    ]


def baselines(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """The losses of the literature at each code length, all at the base configuration's learning rate; what the command
    runs has each at its own (`baselines.run_baselines`)."""
    return [
        _run(base, method, loss, n_bits, seed)
        for method, loss in BASELINES.items()
        for n_bits, seed in product(bits, seeds)
    ]


def channels(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """DSCH as published, SCH with its quantisation term, and the channels of `TUNED`."""
    published = {"DSCH, as published": METHODS["DSCH"], "SCH + quantisation": METHODS["SCH + quantisation"]}
    return [
        _run(base, method, loss, n_bits, seed)
        for method, loss in {**published, **TUNED}.items()
        for n_bits, seed in product(bits, seeds)
    ]


def shapes(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """The channels of `SHAPES`, all with the same weights beside them."""
    return [
        _run(base, method, loss | _beside(n_bits), n_bits, seed)
        for method, loss in SHAPES.items()
        for n_bits, seed in product(bits, seeds)
    ]


def _beside(n_bits: int) -> dict[str, Any]:
    return {"kappa_q": SHAPES_KAPPA_Q, "average_precision": SHAPES_PER_BIT * n_bits}


def extensions(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """DSCH, and DSCH with each option of `EXTENSIONS` alone; without text augmentation where the model's texts are no
    tokens."""
    runs = [_run(base, "DSCH", METHODS["DSCH"], n_bits, seed) for n_bits, seed in product(bits, seeds)]
    tokens = pick(MODELS, base["model"].get("name"), "model.name").tokens
    for name, change in EXTENSIONS.items():
        if tokens or name != TEXT_AUGMENTATION:
            changed = {**base, "train": {**base.get("train", {}), **change.get("train", {})}}
            loss = METHODS["DSCH"] | change.get("loss", {})
            runs += [_run(changed, name, loss, n_bits, seed) for n_bits, seed in product(bits, seeds)]
    return runs


def incremental(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """Trainings on the whole collection, by the base configuration's loss or DSCH; `incremental.run_incremental` makes
    the others of them."""
    loss = dict(base.get("loss", METHODS["DSCH"]))
    return [_run(base, "retrained, re-encoded", loss, n_bits, seed) for n_bits, seed in product(bits, seeds)]


def distillation(base: Sections, bits: Sequence[int], seeds: Sequence[int]) -> list[GridRun]:
    """Teachers, by the base configuration's loss or DSCH; `runs.run_distillation` adds their students."""
    loss = dict(base.get("loss", METHODS["DSCH"]))
    return [_run(base, TEACHER, loss, n_bits, seed) for n_bits, seed in product(bits, seeds)]


#: name of the command -> (what is asked, its runs, code lengths by default).
GRIDS: dict[str, tuple[str, Callable[[Sections, Sequence[int], Sequence[int]], list[GridRun]], tuple[int, ...]]] = {
    "losses": ("Losses by code length", losses, PAPER_BITS),
    "gamma-w": ("DSCH by γ_w", gamma_w, (32,)),
    "architectures": ("Architectures and losses", architectures, (32,)),
    "factorial": ("Channel and quantisation term", factorial, (16, 32, 64)),
    "reranking": ("Re-ranking by asymmetric distance", reranking, (16, 32, 64)),
    "extensions": ("Options beside DSCH, one at a time", extensions, (32,)),
    "baselines": ("Losses of the literature under one protocol", baselines, PAPER_BITS),
    "channels": ("Losses of channels, tuned alike", channels, PAPER_BITS),
    "shapes": ("Shapes of the channel", shapes, PAPER_BITS),
    "incremental": ("New labels, old codes kept", incremental, (32,)),
    "distillation": ("A large model's codes from small ones", distillation, (32,)),
}


def make_grid(
    name: str,
    base: str | Path,
    folder: Path,
    data: Path | None = None,
    overrides: Sequence[str] = (),
    bits: Sequence[int] | None = None,
    seeds: int = 3,
    quick: bool = False,
    command: str = "",
) -> Grid:
    """A grid by its name.

    Args:
        name: key of `GRIDS`.
        base: key of `DATASETS`, or a configuration file.
        folder: the grid's folder; drawn pictures go below it.
        data: folder or file of the data instead of the base configuration's.
        overrides: ``"section.key=value"`` for all runs.
        bits: code lengths; the grid's own if None.
        seeds: runs of each cell.
        quick: see `QUICK`; for drawn pictures only.
        command: what makes the grid again.

    Raises:
        InputError: a name or key is unknown, or ``quick`` is asked for another collection.
    """
    title, make, lengths = pick(GRIDS, name, "experiment")
    if isinstance(base, Path):
        sections = read_sections(base)
    else:
        sections = {section: dict(keys) for section, keys in pick(DATASETS, base, "--dataset").items()}
    kind = sections.get("data", {}).get("kind")
    if quick:
        if kind != "synthetic":
            raise InputError("--quick: goes with --dataset synthetic; elsewhere lower train.epochs with --set")
        for section, keys in QUICK.items():
            sections[section] = {**sections.get(section, {}), **keys}
    if kind == "synthetic" and data is None and base == "synthetic":
        data = folder / "data"
    if data is not None:
        key = "root" if kind in ("synthetic", "mirflickr25k", "nuswide") else "path"
        sections["data"][key] = str(data)
    for override in overrides:
        apply_override(sections, override)
    return Grid(name, f"{title}, {kind}", command, tuple(make(sections, bits or lengths, range(seeds))))


def _run(base: Sections, method: str, loss: dict[str, Any], n_bits: int, seed: int, prefix: str = "") -> GridRun:
    sections = {section: dict(keys) for section, keys in base.items()}
    sections["model"]["n_bits"] = n_bits
    sections["loss"] = loss
    sections.setdefault("train", {})["seed"] = seed
    config: RunConfig = make_config(sections)
    return GridRun(f"{prefix}{_slug(method)}-k{n_bits}-seed{seed}", method, config)


def _slug(method: str) -> str:
    spelled = method.lower().replace("γ", "gamma").replace("κ", "kappa").replace("+", "plus").replace("²", "2")
    kept = "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in spelled)
    return "-".join(part for part in kept.split("-") if part)
