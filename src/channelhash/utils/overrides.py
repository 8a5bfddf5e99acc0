"""Overrides of a configuration: ``section.key=value``."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from channelhash.errors import InputError
from channelhash.utils.python_names import is_python_name


def apply_override(values: dict[str, Any], override: str) -> None:
    """Put ``"section.key=value"``, the value in YAML, into nested ``values``.

    >>> values = {"train": {"epochs": 3}}
    >>> apply_override(values, "train.learning_rate=1e-4")
    >>> values
    {'train': {'epochs': 3, 'learning_rate': 0.0001}}

    Raises:
        InputError: the override has another form.
    """
    path, separator, text = override.partition("=")
    section, dot, key = path.strip().partition(".")
    if not separator or not dot or not key:
        raise InputError(f"--set {override}: write it as section.key=value, e.g. --set train.epochs=30")
    try:
        value = text if is_python_name(text) else yaml.safe_load(text)  # YAML reads `python:` as a mapping
    except (yaml.YAMLError, ValueError, RecursionError):  # of dates that are none, and of too many brackets
        raise InputError(f"--set {override}: {text!r} is not a YAML value") from None
    if isinstance(value, str):
        with suppress(ValueError):  # YAML 1.1 reads 1e-4 as a string; a number is what a person means
            value = float(value)
    values.setdefault(section, {})[key] = value


def path_override(key: str, path: Path) -> str:
    """Return the override of a key by a path as it is, also where YAML would read its name as a number or a mapping.

    >>> values = {}
    >>> apply_override(values, path_override("data.root", Path("2024: summer")))
    >>> values
    {'data': {'root': './2024: summer'}}
    """
    return f"{key}={json.dumps(os.path.join(os.curdir, path), ensure_ascii=False)}"
