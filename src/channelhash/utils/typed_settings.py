"""Typed settings read from the signatures of functions: the arguments of a function are the keys of its section."""

import difflib
import inspect
import json
import os
import re
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from channelhash.errors import InputError


class Settings(BaseModel):
    """Immutable settings; an unknown key is an error.

    >>> class Size(Settings):
    ...     width: int = 3
    >>> Size(width="4").width
    4
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


_SettingsType = TypeVar("_SettingsType", bound=Settings)


#: A number of things, at least 1, of which a mistaken file cannot ask for more than memory holds.
Count = Annotated[int, Field(ge=1, le=2**31)]


@cache
def settings_of(function: Callable[..., Any], skip: frozenset[str] = frozenset()) -> type[Settings]:
    """Return a settings class with one field for each parameter of ``function`` (annotation and default).

    >>> def load(path: str, count: int = 3, progress: object = None): ...
    >>> list(settings_of(load, frozenset({"progress"})).model_fields)
    ['path', 'count']

    Args:
        function: a function, or a class for its constructor. Parameters without annotation take any value.
        skip: names of parameters that are no settings; ``*args`` and ``**kwargs`` never are.
    """
    is_constructed = inspect.isclass(function) and not issubclass(function, tuple)  # a named tuple has hints itself
    target = function.__init__ if is_constructed else function
    hints = typing.get_type_hints(target, include_extras=True)  # Annotated holds further checks
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in skip and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[name] = (hints.get(name, Any), default)
    return create_model(f"{function.__name__}_settings", __base__=Settings, **fields)


def read_settings(kind: type[_SettingsType], values: Mapping[str, Any], where: str) -> _SettingsType:
    """Check ``values`` against ``kind``.

    >>> def load(path: str, count: int = 3): ...
    >>> read_settings(settings_of(load), {"path": "a"}, "data").count
    3

    Raises:
        InputError: names the key (``where`` is the section) and says what is expected; for an unknown key, the
            nearest known one.
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in (where, *first["loc"]) if str(part))
        if first["type"] == "extra_forbidden":
            raise InputError(unknown(f"key {key}", str(first["loc"][-1]), list(kind.model_fields))) from None
        if first["type"] == "missing":
            raise InputError(f"{key}: is missing and has no default") from None
        quotes = f"; --set \"{key}='…'\" gives a text" if first["type"] == "string_type" else ""
        raise InputError(f"{key}: {first['msg'].lower()}, got {first['input']!r}{quotes}") from None


def unknown(what: str, name: str, known: list[str]) -> str:
    """Return one line about an unknown name: with the nearest known one, or with all of them.

    >>> unknown("loss 'dcsh'", "dcsh", ["dsch", "tdsrdh"])
    "unknown loss 'dcsh'; did you mean 'dsch'?"
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return f"unknown {what}; {hint}"


def pick(registry: Mapping[str, Any], name: Any, where: str) -> Any:
    """Return the entry ``name`` of a registry.

    >>> pick({"dsch": 1, "sch": 2}, "sch", "loss.name")
    2

    Raises:
        InputError: there is no such entry; the nearest one is named.
    """
    if not isinstance(name, str) or name not in registry:
        raise InputError(unknown(f"{where} {name!r}", str(name), list(registry)))
    return registry[name]


def read_both(
    first: type[Settings], second: type[_SettingsType], values: dict[str, Any], section: str, owner: str
) -> tuple[Settings, _SettingsType]:
    """Read a section whose keys are the fields of two classes; messages name their ``owner``."""
    known = list(dict.fromkeys([*first.model_fields, *second.model_fields]))
    for key in values:
        if key not in known:
            raise InputError(unknown(f"key {section}.{key} for {owner}", key, known))
    parts = ({key: value for key, value in values.items() if key in kind.model_fields} for kind in (first, second))
    return read_settings(first, next(parts), section), read_settings(second, next(parts), section)


def absolute(settings: _SettingsType) -> _SettingsType:
    """Return settings with absolute paths, so that a run's folder can be used from anywhere."""
    return settings.model_copy(update={name: _absolute(value) for name, value in vars(settings).items()})


def _absolute(value: Any) -> Any:
    if isinstance(value, list):
        return [_absolute(part) for part in value]
    return value.resolve() if isinstance(value, Path) else value


#: A separator of labels and the like: to YAML a comment, a list of nothing, or no value.
_SIGNS = re.compile(r"[^\w\[\]{}\"'~]+")


def apply_override(values: dict[str, Any], override: str) -> None:
    """Put ``"section.key=value"`` into nested ``values``: in YAML, or as it is where it is no YAML or signs alone.

    >>> values = {"train": {"epochs": 3}}
    >>> apply_override(values, "train.learning_rate=1e-4")
    >>> values
    {'train': {'epochs': 3, 'learning_rate': 0.0001}}
    >>> apply_override(values, "data.label_separator=|")
    >>> values["data"]
    {'label_separator': '|'}

    Raises:
        InputError: the override has another form.
    """
    path, separator, text = override.partition("=")
    section, dot, key = path.strip().partition(".")
    if not separator or not dot or not key:
        raise InputError(f"--set {override}: write it as section.key=value, e.g. --set train.epochs=30")
    value: Any = text
    if not text.startswith("python:") and not _SIGNS.fullmatch(text):  # YAML would read a mapping
        with suppress(yaml.YAMLError, ValueError, RecursionError):  # of dates that are none, of too many brackets
            value = yaml.safe_load(text)
    if value == text.strip():
        with suppress(ValueError):  # YAML 1.1 reads 1e-4 as a string; a number is what a person means
            value = float(text)
    values.setdefault(section, {})[key] = value


def path_override(key: str, path: Path) -> str:
    """Return the override of a key by a path as it is, also where YAML would read its name as a number or a mapping.

    >>> values = {}
    >>> apply_override(values, path_override("data.root", Path("2024: summer")))
    >>> values
    {'data': {'root': './2024: summer'}}
    """
    return f"{key}={json.dumps(os.path.join(os.curdir, path), ensure_ascii=False)}"
