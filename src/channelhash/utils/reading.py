"""The border of every file that is read: whatever a decoder raises for damaged content becomes one line."""

import codecs
import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from channelhash.errors import InputError, JobError

#: Levels of YAML that any thread's stack holds; a configuration has less than a hundred keys.
_DEEP = 500

#: What is no damage of the content, and is said elsewhere.
_OTHERS = (InputError, JobError, MemoryError)


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@contextmanager
def reading(place: object, problem: str, remedy: str = "") -> Iterator[None]:
    """Raise what goes wrong inside the block as `InputError`: ``PLACE: PROBLEM (reason); REMEDY``.

    Decoders (JSON, YAML, Arrow, zip, torch …) have many types of errors for damaged content, and values of a wrong
    type raise more of them further on. The block holds nothing but decoding and the checks of its result.

    >>> with reading("a.json", "not a list of numbers", "write it again"):
    ...     sum(json.loads('["1"]'))
    Traceback (most recent call last):
    channelhash.errors.InputError: a.json: not a list of numbers (unsupported operand type(s) for +: 'int' and 'str'); \
write it again
    """
    try:
        yield
    except _OTHERS:
        raise
    except Exception as error:
        if isinstance(error, FileNotFoundError | PermissionError) or getattr(error, "errno", None) in _DISK:
            raise
        raise InputError(f"{place}: {problem} ({one_line(error)})" + (f"; {remedy}" if remedy else "")) from error


def one_line(error: Exception) -> str:
    """Return what an error says in one line of at most 500 characters, or its type if it says nothing.

    >>> one_line(ValueError("of two\\n lines")), one_line(EOFError())
    ('of two lines', 'EOFError')
    """
    said = f"it lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
    return f"{said[:500]}…" if len(said) > 500 else said or type(error).__name__


def read_text(path: Path) -> str:
    """Return a text file's content: UTF-8, or UTF-16 that begins with its byte-order mark, as Excel and Windows write.

    Raises:
        InputError: the file is missing or cannot be read, or it is in another encoding; the line is named.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def read_json(path: Path, problem: str, remedy: str = "") -> dict[str, Any]:
    """Return the JSON object in a file; errors as in `reading`."""
    with reading(path, problem, remedy):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(content, dict):
            raise ValueError(f"a JSON object is expected, not {type(content).__name__}")
        return content


def parse_yaml(text: str) -> Any:
    """Return the plain values that YAML says, by libyaml where it is built, which takes a tenth of the time.

    Raises:
        yaml.YAMLError: the text is no YAML.
        RecursionError: its lists are nested too deep.

    >>> parse_yaml("train: {epochs: 3}")
    {'train': {'epochs': 3}}
    """
    # libyaml ends the process where lists are nested too deep. Every level takes one of these characters.
    deep = sum(text.count(character) for character in "[{-?:") > _DEEP
    loader = (yaml.SafeLoader if deep else getattr(yaml, "CSafeLoader", yaml.SafeLoader))(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read_yaml_sections(path: Path, expected: str) -> dict[str, dict[str, Any]]:
    """Return the sections of a YAML file: names to keys with values.

    Raises:
        InputError: the file is not YAML, or holds something else (then the message says what is ``expected``).
    """
    with reading(path, "not readable YAML"):
        sections = parse_yaml(path.read_text(encoding="utf-8"))
    if not isinstance(sections, dict) or not all(isinstance(section, dict) for section in sections.values()):
        raise InputError(f"{path}: {expected}")
    for name, section in sections.items():
        for key in (name, *section):
            if not isinstance(key, str):
                raise InputError(f"{path}: in section {name!r}: {key!r} is no key; a key is a text")
    return sections
