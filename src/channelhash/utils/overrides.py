"""Overrides of a configuration: ``section.key=value``."""

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from channelhash.errors import InputError
from channelhash.utils.python_names import is_python_name

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
    if not is_python_name(text) and not _SIGNS.fullmatch(text):  # YAML reads `python:` as a mapping
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
