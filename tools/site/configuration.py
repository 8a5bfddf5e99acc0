"""The page "Configuration", made from the signatures that a configuration's keys are."""

import re
import typing
from collections.abc import Callable
from typing import Any

import griffe

from channelhash.config import ExtendSettings, TrainSettings, _EvaluateSettings
from channelhash.data import DATA_KINDS
from channelhash.data.splits import SplitSettings
from channelhash.losses import LOSSES, loss_settings
from channelhash.models import MODELS
from channelhash.utils.typed_settings import Settings, settings_of

_INTRODUCTION = """# Configuration

A YAML file describes a run in the sections `data`, `model`, `loss`, `train` and `evaluate`, and in `extend` for a run
that [extends another](../how-to/incremental.md). `--set` overrides any key: `channelhash train run.yaml --set
loss.name=sch --set train.epochs=30`. An unknown key is an error that suggests the nearest known one. A run's folder
keeps the complete configuration, with every default filled in, as `config.yaml`.

```yaml
data: {kind: features, path: f.npz, queries: 1000, train: 5000}
model: {name: features, n_bits: 32}
loss: {name: dsch, kappa_q: 0.01}
train: {epochs: 30, batch_size: 128, learning_rate: 1.0e-4, seed: 0}
```

`kind` and `name` take the names on this page, or `python:module:Name` for your own [loss](../how-to/add-a-loss.md),
[model](../how-to/add-a-model.md) or [data set](../how-to/add-a-data-set.md). Keys are the arguments of the functions
that receive them ([why](../explanation/decisions/0001-records-and-signatures.md)).
"""


_YAML = {"None": "null", "True": "true", "False": "false"}


def configuration_page() -> str:
    """Return the page as Markdown."""
    parts = [
        _INTRODUCTION,
        "## data\n\n`kind` selects the data set. Every kind takes these keys:\n",
    ]
    parts.append(_table(SplitSettings, SplitSettings.__doc__))
    for kind, entry in DATA_KINDS.items():
        parts.append(f"### data.kind: {kind}\n\n{_summary(entry.load)}\n")
        parts.append(_table(settings_of(entry.load, frozenset({"progress"})), entry.load.__doc__))
    parts.append(
        "## model\n\n`name` selects the model; `n_bits` is the code length k (32 by default).\n"
    )
    for name, model in MODELS.items():
        parts.append(f"### model.name: {name}\n\n{_summary(model.create)}\n")
        parts.append(
            _table(settings_of(model.create, frozenset({"train", "n_bits"})), model.create.__doc__)
        )
    parts.append(
        "## loss\n\n`name` selects the loss; its keys are its paper's symbols. Equations: "
        "[losses](api/losses.md).\n\n"
        "`published: true` sets what the authors set differently from the defaults ([the "
        "baselines](baselines.md)).\n"
        "`recommended: true` sets the weights that we recommend for `dsch`, `sch` and `bsch` "
        "([Which\n"
        "loss?](../explanation/which-loss.md)). Keys given in addition override both.\n"
    )
    for name, loss in LOSSES.items():
        parts.append(f"### loss.name: {name}\n\n{_summary(loss)}\n")
        parts.append(_table(loss_settings(loss), loss.__doc__))
    for name, section in {
        "train": TrainSettings,
        "evaluate": _EvaluateSettings,
        "extend": ExtendSettings,
    }.items():
        parts += [f"## {name}\n", _table(section, section.__doc__)]
    return "\n".join(parts)


def _table(settings: type[Settings], docstring: str | None) -> str:
    said = _descriptions(docstring or "")
    rows = []
    for name, field in settings.model_fields.items():
        default = (
            "required"
            if field.is_required()
            else f"`{_default(field.get_default(call_default_factory=True))}`"
        )
        cells = [
            f"`{name}`",
            f"`{_type(field.annotation)}`{_range(field.metadata)}",
            default,
            said.get(name, ""),
        ]
        rows.append("| " + " | ".join(map(_cell, cells)) + " |")
    if not rows:
        return "No further keys.\n"
    return "\n".join(["| key | type | default | |", "|---|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    """Escape each | in a table's cell, which it would end, but not within code."""
    parts = text.split("`")
    return "`".join(
        part if number % 2 else part.replace("|", "\\|") for number, part in enumerate(parts)
    )


def _descriptions(docstring: str) -> dict[str, str]:
    """Return what a docstring's ``Args`` or ``Attributes`` says of each name, in one line."""
    said = {}
    for section in griffe.Docstring(docstring).parse("google", warnings=False):
        if section.kind in (
            griffe.DocstringSectionKind.parameters,
            griffe.DocstringSectionKind.attributes,
        ):
            for entry in section.value:
                words = " ".join(entry.description.split())
                words = re.sub(r"\b(None|True|False)\b", lambda word: f"`{_YAML[word[0]]}`", words)
                said[entry.name] = words.replace("``", "`")
    return said


def _summary(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a docstring, without an equation that follows it."""
    paragraph = " ".join((function.__doc__ or "").split("\n\n")[0].split())
    return paragraph.removesuffix("::") + ("." if paragraph.endswith("::") else "")


def _range(metadata: list[Any]) -> str:
    """Return the bounds of a value, such as " ≥ 1"."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    return "".join(
        f" {signs[key]} {value}"
        for bound in metadata
        for key, value in _fields_of(bound).items()
        if key in signs
    )


def _fields_of(bound: Any) -> dict[str, Any]:
    """Return the fields of one of annotated_types' bounds, which have slots."""
    return {name: getattr(bound, name) for name in getattr(bound, "__slots__", ())}


def _default(value: object) -> str:
    """As it is written in YAML."""
    if value is None or isinstance(value, bool):
        return _YAML[str(value)]
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _type(annotation: Any) -> str:
    """Return a type in the words of YAML: ``str | null``, ``file or folder``, the words of a
    literal.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is typing.Literal:
        return " | ".join(map(str, arguments))
    if origin is not None and arguments and not isinstance(origin, type):  # a union
        return " | ".join(map(_type, arguments))
    if origin in (list, tuple):
        return f"[{_type(arguments[0])}, …]"
    if origin is dict:
        return f"{{{_type(arguments[0])}: {_type(arguments[1])}}}"
    names = {type(None): "null", bool: "true | false", "Path": "path"}
    name = getattr(annotation, "__name__", str(annotation))
    if arguments:  # X | Y, whose origin is a class
        return " | ".join(map(_type, arguments))
    return names.get(annotation, names.get(name, name))
