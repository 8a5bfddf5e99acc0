"""Settings typed by the signatures of functions, and names of a person's own code:
``python:package.module:Name``.

Resolving such a name imports its module, which runs its code. A name in a person's own
configuration or on the command line is that person's word. A name in the folder of a run, a saved
model or a store, which may have been downloaded, needs consent: whatever reads such a file calls
`check_trusted`, and a person consents through `trusting`.
"""

import difflib
import importlib
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Annotated, Any, TypeVar, get_type_hints

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from channelhash.errors import InputError, JobError, argument


class Settings(BaseModel):
    """Immutable settings; an unknown key is an error.

    >>> class Size(Settings):
    ...     width: int = 3
    >>> Size(width="4").width
    4
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


_SettingsType = TypeVar("_SettingsType", bound=Settings)
_Expected = TypeVar("_Expected")


#: A number of things, at least 1, of which a mistaken file cannot ask for more than memory holds.
PositiveCount = Annotated[int, Field(ge=1, le=2**31)]


@cache
def settings_of(function: Callable[..., Any], skip: frozenset[str] = frozenset()) -> type[Settings]:
    """Return a settings class with one field for each parameter of ``function`` (annotation and
    default).

    >>> def load(path: str, count: int = 3, progress: object = None): ...
    >>> list(settings_of(load, frozenset({"progress"})).model_fields)
    ['path', 'count']
    """
    # a named tuple has hints itself
    is_constructed = inspect.isclass(function) and not issubclass(function, tuple)
    target = function.__init__ if is_constructed else function
    hints = get_type_hints(target, include_extras=True)  # Annotated holds further checks
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in skip and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[name] = (hints.get(name, Any), default)
    return create_model(f"{function.__name__}_settings", __base__=Settings, **fields)


def read_settings(
    kind: type[_SettingsType], values: Mapping[str, Any], where: str
) -> _SettingsType:
    """Check ``values`` against ``kind``.

    >>> def load(path: str, count: int = 3): ...
    >>> read_settings(settings_of(load), {"path": "a"}, "data").count
    3
    """
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in (where, *first["loc"]) if str(part))
        if first["type"] == "extra_forbidden":
            raise InputError(
                unknown(f"key {key}", str(first["loc"][-1]), list(kind.model_fields))
            ) from None
        if first["type"] == "missing":
            raise InputError(f"{key}: is missing and has no default") from None
        remedy = ""
        if first["type"] == "string_type" and isinstance(first["loc"][-1], int):
            remedy = "; write the text in quotes"  # YAML reads yes, no and null as other things
        elif first["type"] == "string_type":
            remedy = f"; {argument('overrides')} \"{key}='…'\" gives a text"
        raise InputError(f"{key}: {first['msg'].lower()}, got {first['input']!r}{remedy}") from None


def unknown(subject: str, name: str, known: list[str]) -> str:
    """Return one line about an unknown name: with the nearest known one, or with all of them.

    >>> unknown("loss 'dcsh'", "dcsh", ["dsch", "tdsrdh"])
    "unknown loss 'dcsh'; did you mean 'dsch'?"
    >>> unknown("key model.hidden", "hidden", [])
    'unknown key model.hidden; known: none'
    """
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known) or 'none'}"
    return f"unknown {subject}; {hint}"


def pick(registry: Mapping[str, Any], name: Any, where: str) -> Any:
    """Return the entry ``name`` of a registry.

    >>> pick({"dsch": 1, "sch": 2}, "sch", "loss.name")
    2
    """
    if not isinstance(name, str) or name not in registry:
        raise InputError(unknown(f"{where} {name!r}", str(name), list(registry)))
    return registry[name]


def read_both(
    first: type[Settings],
    second: type[_SettingsType],
    values: dict[str, Any],
    section: str,
    owner: str,
) -> tuple[Settings, _SettingsType]:
    """Read a section whose keys are the fields of two classes; messages name their ``owner``."""
    known = list(dict.fromkeys([*first.model_fields, *second.model_fields]))
    for key in values:
        if key not in known:
            raise InputError(unknown(f"key {section}.{key} for {owner}", key, known))
    of_first = {key: value for key, value in values.items() if key in first.model_fields}
    of_second = {key: value for key, value in values.items() if key in second.model_fields}
    return read_settings(first, of_first, section), read_settings(second, of_second, section)


def absolute(settings: _SettingsType) -> _SettingsType:
    """Return settings with absolute paths, so that a run's folder can be used from anywhere."""
    return settings.model_copy(
        update={name: _absolute(value) for name, value in vars(settings).items()}
    )


def _absolute(value: Any) -> Any:
    if isinstance(value, list):
        return [_absolute(part) for part in value]
    return value.resolve() if isinstance(value, Path) else value


#: A separator of labels and the like: to YAML a comment, a list of nothing, or no value.
_SIGNS = re.compile(r"[^\w\[\]{}\"'~]+")


def apply_overrides(values: dict[str, Any], *overrides: str) -> None:
    """Put each ``"section.key=value"`` into nested ``values``: in YAML, or as it is where it is no
    YAML or signs alone.

    >>> values = {"train": {"epochs": 3}}
    >>> apply_overrides(values, "train.learning_rate=1e-4")
    >>> values
    {'train': {'epochs': 3, 'learning_rate': 0.0001}}
    >>> apply_overrides(values, "data.label_separator=|")
    >>> values["data"]
    {'label_separator': '|'}
    """
    for override in overrides:
        path, separator, text = override.partition("=")
        section, dot, key = path.strip().partition(".")
        if not separator or not dot or not key:
            raise InputError(
                f"{argument('overrides')} {override}: write it as section.key=value, e.g. "
                f"{argument('overrides')} train.epochs=30"
            )
        value: Any = text
        # YAML would read a mapping
        if not text.startswith("python:") and not _SIGNS.fullmatch(text):
            # of dates that are none, of too many brackets
            with suppress(yaml.YAMLError, ValueError, RecursionError):
                value = yaml.safe_load(text)
        if value == text.strip():
            # YAML 1.1 reads 1e-4 as a string; a number is what a person means
            with suppress(ValueError):
                value = float(text)
        values.setdefault(section, {})[key] = value


def path_override(key: str, path: Path) -> str:
    """Return the override of a key by a path as it is, also where YAML would read its name as a
    number or a mapping.

    >>> values = {}
    >>> apply_overrides(values, path_override("data.root", Path("2024: summer")))
    >>> values
    {'data': {'root': './2024: summer'}}
    """
    return f"{key}={json.dumps(os.path.join(os.curdir, path), ensure_ascii=False)}"


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
    """Return the module and the object that ``python:module:Name`` refers to, without importing
    anything.

    >>> split_python_name("python:package.my_losses:MyLoss")
    ('package.my_losses', 'MyLoss')
    """
    module, _, path = name.removeprefix(_PREFIX).partition(":")
    if not is_python_name(name) or not all(
        part.isidentifier() for part in (*module.split("."), *path.split("."))
    ):
        raise InputError("write it as python:package.module:Name")
    return module, path


def resolve(name: str) -> Any:
    """Import the module of ``python:module:Name`` and return the object. A module in the current
    folder is found too.

    >>> resolve("python:math:sqrt")(9)
    3.0
    """
    module_name, path = split_python_name(name)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # last: a file there cannot stand in for an installed module
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:  # the module is someone's own code, which may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(
            f"{error.name}."
        ):
            raise InputError(
                f"the module cannot be imported ({error}); put its file into this folder, install "
                "it, or put its folder on PYTHONPATH"
            ) from error
        frame = traceback.extract_tb(error.__traceback__)[-1]
        file = frame.filename
        line = frame.lineno
        if isinstance(error, SyntaxError):
            file = error.filename or file
            line = error.lineno
        raise InputError(
            f"the module cannot be imported: in {file}, line {line}: {_reason(error)}; mend it"
        ) from error
    for part in path.split("."):
        if not hasattr(target, part):
            raise InputError(f"the module {module_name} has no {path!r}")
        target = getattr(target, part)
    resolved[name] = target
    return target


def failing_line(error: BaseException) -> str:
    """Return where a person's own code, or what it called, raised ``error``; empty if none of it
    was running.
    """
    files = _own_files()
    folders = {str(Path(file).parent) for file in files.values() if file}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        code = frame.f_code
        if str(Path(code.co_filename).parent) in folders:
            return (
                f"in {code.co_filename}, line {line}, in {code.co_qualname}: {_reason(error)}; "
                f"your {_name_of_code(code, files)} failed"
            )
    return ""


def _name_of_code(code: CodeType, files: Mapping[str, str]) -> str:
    """Return which of the resolved names, with their files, most likely led to this code."""
    names = [name for name, file in files.items() if file == code.co_filename] or list(files)
    owner = code.co_qualname.partition(".")[0]
    return next((name for name in names if split_python_name(name)[1] == owner), names[0])


def failing_code(error: BaseException, values: object = None) -> str:
    """Return a line about an error in whose process a person's own code takes part, of ``values``
    if there are any; empty if there is none, and for errors that name their cause.
    """
    if isinstance(error, InputError | JobError | OSError | MemoryError):
        return ""
    files = _own_files()
    suspects = files.keys() if values is None else files.keys() & set(python_names(values))
    places = [f"{name} ({_place_of(name, files[name])})" for name in files if name in suspects]
    return f"{_reason(error)}; probably the fault of your {' or '.join(places)}" if places else ""


def _place_of(name: str, file: str) -> str:
    """Return the file of a resolved name, and the line where its code begins if that is known."""
    target = resolved[name]
    if not (inspect.isclass(target) or inspect.isfunction(target)):
        target = type(target)
    place = file or "no file"
    if target.__module__ == split_python_name(name)[0]:
        with suppress(OSError):  # no source: a notebook, or a file that is gone
            place += f", line {inspect.getsourcelines(target)[1]}"
    return place


@contextmanager
def naming_own_code() -> Iterator[None]:
    """Raise an error of a person's own code as `JobError` with its line, where another process or
    `reading` gets it.

    >>> with naming_own_code():
    ...     raise ValueError("not of anyone's own code")
    Traceback (most recent call last):
    ValueError: not of anyone's own code
    """
    try:
        yield
    except (InputError, JobError, MemoryError):
        raise
    except Exception as error:
        line = failing_line(error)
        if line:
            raise JobError(line) from error
        raise


def _own_files() -> dict[str, str]:
    """Return the resolved names of code that is not of this package, with the file of each; empty
    if there is none.
    """
    modules = {name: split_python_name(name)[0] for name in resolved}
    foreign = {
        name: module
        for name, module in modules.items()
        if module.partition(".")[0] != "channelhash"
    }
    return {
        name: getattr(sys.modules.get(module), "__file__", None) or ""
        for name, module in foreign.items()
    }


def _reason(error: BaseException) -> str:
    """Return type and message of an error."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def look_up(registry: Mapping[str, Any], name: Any, where: str) -> Any:
    """Return the entry ``name`` of a registry, or what ``python:module:Name`` refers to.

    >>> look_up({"abs": abs}, "abs", "function")(-2)
    2
    >>> look_up({"abs": abs}, "python:math:sqrt", "function")(9)
    3.0
    """
    if not is_python_name(name):
        if isinstance(name, str) and ":" in name and name not in registry:
            raise InputError(f"unknown {where} {name!r}; did you mean '{_PREFIX}{name}'?")
        return pick(registry, name, where)
    try:
        return resolve(name)
    except InputError as error:
        raise InputError(f"{where} {name}: {error}") from error


def check_kind(value: Any, kind: type[_Expected], owner: str) -> _Expected:
    """Return what a function of a person's own returned, which has to be of a kind.

    >>> check_kind(None, list, "tables of study.py")
    Traceback (most recent call last):
    channelhash.errors.InputError: tables of study.py: has to return list, not NoneType
    """
    if not isinstance(value, kind):
        raise InputError(f"{owner}: has to return {kind.__name__}, not {type(value).__name__}")
    return value


@contextmanager
def trusting(trust: _Trust) -> Iterator[None]:
    """Consent within the block to code that saved files name, beside what a block around it
    consents to.

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

    >>> check_trusted({"model": {"name": "python:os:system"}}, Path("config.yaml"))
    Traceback (most recent call last):
    channelhash.errors.InputError: config.yaml: names python:os:system, \
code that would run on this machine; if you trust it, add trust_code
    """
    for name in python_names(values):
        if not any(trust if isinstance(trust, bool) else name in trust for trust in _trusted.get()):
            printable = "".join(filter(str.isprintable, name))[:200]
            raise InputError(
                f"{file}: names {printable}, code that would run on this machine; if you trust it, "
                f"add {argument('trust_code')}"
            )


def python_names(values: object) -> list[str]:
    """Return the ``python:`` names in nested lists and dictionaries.

    >>> python_names({"model": {"name": "python:mine:NET"}, "loss": ["dsch"]})
    ['python:mine:NET']
    """
    names = []
    seen = set[int]()
    waiting = [values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if is_python_name(value):
                names.append(value)
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            # YAML's anchors can make circles
            seen.add(id(value))
            waiting += [*value, *value.values()] if isinstance(value, Mapping) else value
    return names
