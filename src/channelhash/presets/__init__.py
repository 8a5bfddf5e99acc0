"""Configurations that ship with the package, and what a few words make of them. Reading them takes
no PyTorch.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from channelhash.data.table import TABLE_ENDINGS
from channelhash.data.vectors import content_of
from channelhash.errors import InputError, argument
from channelhash.utils.array_files import ENDINGS
from channelhash.utils.typed_settings import path_override

_ENDINGS = dict.fromkeys((*TABLE_ENDINGS, *ENDINGS))


def presets() -> dict[str, Path]:
    """Return the name and the file of each configuration, in alphabetical order.

    >>> presets()["photo"].name
    'photo.yaml'
    """
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.yaml"))}


def preset_path(name: str) -> Path:
    """Return the file of a configuration.

    >>> preset_path("photo").name
    'photo.yaml'
    """
    files = presets()
    if name not in files:
        raise InputError(f"no preset {name!r}; there are {', '.join(files)}")
    return files[name]


def configuration_path(config: Path | None, preset: str | None) -> Path | None:
    """Return the file that a command's arguments name, None where they name none.

    >>> configuration_path(None, "photo").name
    'photo.yaml'
    """
    if config and preset:
        raise InputError(f"name a configuration file or a {argument('preset')}, one of the two")
    return preset_path(preset) if preset else config


def summary(preset: Path) -> str:
    """Return what the first line of a configuration begins with.

    >>> summary(preset_path("fast"))
    'The recommendation in a third of its training time'
    """
    first = preset.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    return re.split(r": |[.;] | \(", first)[0].rstrip(":.")


def data_kind(data: Path) -> str:
    """Return the kind of a file of data.

    >>> data_kind(Path("f.npz"))
    'features'
    """
    if data.suffix.lower() not in _ENDINGS:
        raise InputError(
            f"{argument('data')} {data}: a file ends in {', '.join(_ENDINGS)}; name other data by "
            f"its keys, e.g. {argument('overrides')} data.kind=mirflickr25k "
            f"{argument('overrides')} data.root=mirflickr25k"
        )
    return "table" if content_of(data) == "table" else "features"


def short_overrides(
    sections: Mapping[str, Mapping[str, Any]],
    data: Path | None,
    root: Path | None = None,
    epochs: int | None = None,
) -> list[str]:
    """Return the keys that the short options of `channelhash train` stand for,
    ``"section.key=value"`` each.

    >>> short_overrides({"model": {"name": "aligned"}}, Path("f.npz"), epochs=3)
    ['data.path="./f.npz"', 'data.kind=features', 'model.encoder=features', 'train.epochs=3']
    """
    keys = _data_overrides(data, sections) if data else []
    keys += [path_override("data.root", root)] if root else []
    return keys + ([f"train.epochs={epochs}"] if epochs else [])


def _data_overrides(data: Path, sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the keys that name a file of data, or a folder of the kind that a configuration
    reads.
    """
    section = sections.get("data", {})
    if data.is_dir() and section.get("kind", "table") != "table":
        return [path_override("data.root" if "root" in section else "data.path", data)]
    kind = data_kind(data)
    model = sections.get("model", {}).get("name")
    encoder = ["model.encoder=features"] if (kind, model) == ("features", "aligned") else []
    return [path_override("data.path", data), f"data.kind={kind}", *encoder]
