"""Names of a person's own Python objects in a configuration: ``python:package.module:Name``.

Resolving a name imports its module, which runs its code. A name in a person's own configuration or on the command line
is that person's word. A name in the folder of a run, a saved model or a store, which may have been downloaded, needs
consent: whatever reads such a file calls `check_trusted`, and a person consents through `trusting`.
"""

import importlib
import inspect
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from channelhash.errors import InputError
from channelhash.utils.typed_settings import pick

_PREFIX = "python:"

#: The names that saved files may hold: all of them, or these.
_Trust = bool | Collection[str]

#: Names that this command has resolved, with their objects.
resolved: dict[str, Any] = {}
_trusted: ContextVar[tuple[_Trust, ...]] = ContextVar("trusted", default=())


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
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(
                f"the module cannot be imported ({error}); put its file into this folder, install it, or put its "
                "folder on PYTHONPATH"
            ) from error
        frame = traceback.extract_tb(error.__traceback__)[-1]
        file, line = frame.filename, frame.lineno
        if isinstance(error, SyntaxError):
            file, line = error.filename or file, error.lineno
        raise InputError(f"the module cannot be imported: in {file}, line {line}: {_reason(error)}; mend it") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InputError(f"the module {module_name} has no {path!r}")
        found = getattr(found, part)
    resolved[name] = found
    return found


def failing_line(error: BaseException) -> str:
    """Return where a person's own code, or what it called, raised ``error``; empty if none of it was running."""
    of_file: dict[str, list[str]] = {}
    for name in _own_names():
        module = sys.modules.get(split_python_name(name)[0])
        of_file.setdefault(getattr(module, "__file__", None) or "", []).append(name)
    folders = {str(Path(file).parent) for file in of_file if file}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        code = frame.f_code
        if str(Path(code.co_filename).parent) in folders:
            names = of_file.get(code.co_filename) or _own_names()
            owner = code.co_qualname.partition(".")[0]
            name = next((name for name in names if split_python_name(name)[1] == owner), names[0])
            return f"in {code.co_filename}, line {line}, in {code.co_qualname}: {_reason(error)}; your {name} failed"
    return ""


def failing_code(error: BaseException) -> str:
    """Return a line about an error in whose process a person's own code takes part; empty if there is none."""
    places = []
    for name in _own_names():
        target = resolved[name]
        target = target if inspect.isclass(target) or inspect.isfunction(target) else type(target)
        module = sys.modules.get(split_python_name(name)[0])
        place = getattr(module, "__file__", None) or "no file"
        if target.__module__ == split_python_name(name)[0]:
            with suppress(OSError):  # no source: a notebook, or a file that is gone
                place += f", line {inspect.getsourcelines(target)[1]}"
        places.append(f"{name} ({place})")
    return f"{_reason(error)}; probably the fault of your {' or '.join(places)}" if places else ""


def _own_names() -> list[str]:
    """Return the resolved names of code that is not of this package."""
    return [name for name in resolved if split_python_name(name)[0].partition(".")[0] != "channelhash"]


def _reason(error: BaseException) -> str:
    """Return type and message of an error."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


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


@contextmanager
def trusting(trust: _Trust) -> Iterator[None]:
    """Consent within the block to code that saved files name, beside what a block around it consents to.

    >>> with trusting(["python:math:sqrt"]):
    ...     check_trusted({"name": "python:math:sqrt"}, Path("config.json"))
    """
    before = _trusted.set((*_trusted.get(), trust))
    try:
        yield
    finally:
        _trusted.reset(before)


def check_trusted(values: object, file: Path) -> None:
    """Refuse to run code that a saved file names, unless a person consents.

    Args:
        values: what the file holds; names are looked for at any depth.
        file: the file, for the message.

    Raises:
        InputError: there is a ``python:`` name in it that is not trusted.

    >>> check_trusted({"model": {"name": "python:os:system"}}, Path("config.yaml"))
    Traceback (most recent call last):
    channelhash.errors.InputError: config.yaml: names python:os:system, code that would run on this machine; if you \
trust it, add --trust-code (in Python, trust_code=True)
    """
    for name in python_names(values):
        if not any(trust if isinstance(trust, bool) else name in trust for trust in _trusted.get()):
            printable = "".join(filter(str.isprintable, name))[:200]
            raise InputError(
                f"{file}: names {printable}, code that would run on this machine; if you trust it, add --trust-code "
                "(in Python, trust_code=True)"
            )


def python_names(values: object) -> list[str]:
    """Return the ``python:`` names in nested lists and dictionaries.

    >>> python_names({"model": {"name": "python:mine:NET"}, "loss": ["dsch"]})
    ['python:mine:NET']
    """
    found, seen, waiting = [], set[int](), [values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found += [value] * is_python_name(value)
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:  # YAML's anchors can make circles
            seen.add(id(value))
            waiting += [*value, *value.values()] if isinstance(value, Mapping) else value
    return found
