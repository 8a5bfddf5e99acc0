"""Names of a person's own Python objects in a configuration: ``python:package.module:Name``.

Resolving a name imports its module, which runs its code. A name in a configuration or on the command line is a
person's own word, and so is one in the ``config.yaml`` of a run that a person names to a command. A name in the folder
of a saved model, which may have been downloaded, needs consent: see `check_trusted`.
"""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from channelhash.errors import InputError
from channelhash.utils.typed_settings import pick

_PREFIX = "python:"


def is_python_name(name: object) -> bool:
    """Return whether ``name`` refers to a person's own object rather than to a registered one.

    >>> is_python_name("python:my_losses:MyLoss"), is_python_name("dsch")
    (True, False)
    """
    return isinstance(name, str) and name.startswith(_PREFIX)


def split_python_name(name: str) -> tuple[str, str]:
    """Return the module and the object that ``python:module:Name`` refers to, without importing anything.

    >>> split_python_name("python:package.my_losses:MyLoss")
    ('package.my_losses', 'MyLoss')

    Raises:
        InputError: the name does not have this form.
    """
    module, _, path = name.removeprefix(_PREFIX).partition(":")
    if not is_python_name(name) or not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise InputError("write it as python:package.module:Name")
    return module, path


def resolve(name: str) -> Any:
    """Import the module of ``python:module:Name`` and return the object. A module in the current folder is found too.

    >>> resolve("python:math:sqrt")(9)
    3.0

    Raises:
        InputError: the name does not have this form, the module cannot be imported, or it has no such object.
    """
    module_name, path = split_python_name(name)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # last: a file there cannot stand in for an installed module
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # the module is someone's own code, which may raise anything
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(
            f"the module cannot be imported ({reason}); put its file into this folder, install it, or put its folder "
            "on PYTHONPATH"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(f"the module {module_name} has no {path!r}")
        found = getattr(found, part)
    return found


def look_up(registry: Mapping[str, Any], name: Any, where: str) -> Any:
    """Return the entry ``name`` of a registry, or what ``python:module:Name`` refers to.

    >>> look_up({"abs": abs}, "abs", "function")(-2), look_up({"abs": abs}, "python:math:sqrt", "function")(9)
    (2, 3.0)

    Raises:
        InputError: there is no such entry (the nearest one is named), or as `resolve`; ``where`` comes first.
    """
    if not is_python_name(name):
        return pick(registry, name, where)
    try:
        return resolve(name)
    except InputError as error:
        raise InputError(f"{where} {name}: {error}") from error


def check_trusted(name: object, file: Path, trust_code: bool) -> None:
    """Refuse to run code that a saved file names, unless the person consents.

    Raises:
        InputError: ``name`` is a ``python:`` name and ``trust_code`` is false.
    """
    if is_python_name(name) and not trust_code:
        raise InputError(
            f"{file}: names {name}, code that would run on this machine; if you trust it, pass trust_code=True"
        )
