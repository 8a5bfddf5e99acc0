"""Read files so that whatever a decoder raises for damaged content becomes one line."""

import codecs
import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from channelhash.errors import InputError, JobError

#: Byte-order mark, which programs on Windows write at the beginning of a text.
_MARK = "\ufeff"
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def check_exhausted(error: OSError, name: object) -> None:
    """Raise `JobError` if the system lacked file handles or memory: then a file is not damaged.

    >>> check_exhausted(OSError(errno.EMFILE, "Too many open files"), "items.sqlite")
    Traceback (most recent call last):
    channelhash.errors.JobError: items.sqlite: not now (Too many open files); \
close others, or raise the limit
    """
    if error.errno in _EXHAUSTED:
        raise JobError(
            f"{name}: not now ({os.strerror(error.errno)}); close others, or raise the limit"
        ) from None


#: Levels of YAML that any thread's stack holds; a configuration has less than a hundred keys.
_DEEP = 500
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, *_EXHAUSTED}


@contextmanager
def reading(place: object, problem: str, remedy: str = "") -> Iterator[None]:
    """Raise what goes wrong inside the block as `InputError`: ``PLACE: PROBLEM (reason); REMEDY``.

    Decoders (JSON, YAML, Arrow, zip, torch …) have many types of errors for damaged content, and
    values of a wrong type raise more of them further on. The block holds nothing but decoding and
    the checks of its result.

    >>> with reading("a.json", "not a list of numbers", "write it again"):
    ...     sum(json.loads('["1"]'))
    Traceback (most recent call last):
    channelhash.errors.InputError: a.json: not a list of numbers \
(unsupported operand type(s) for +: 'int' and 'str'); write it again
    """
    try:
        yield
    except (InputError, JobError, MemoryError):  # no damage of the content, and said elsewhere
        raise
    except Exception as error:
        if (
            isinstance(error, FileNotFoundError | PermissionError)
            or getattr(error, "errno", None) in _DISK
        ):
            raise
        raise InputError(
            f"{place}: {problem} ({one_line(error)})" + (f"; {remedy}" if remedy else "")
        ) from error


def one_line(error: Exception) -> str:
    """Return what an error says in one line of at most 500 characters, or its type if it says
    nothing.

    >>> one_line(ValueError("of two\\n lines")), one_line(EOFError())
    ('of two lines', 'EOFError')
    """
    text = f"it lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
    return f"{text[:500]}…" if len(text) > 500 else text or type(error).__name__


def decode_text(content: bytes) -> str:
    """Return a text in UTF-8, or in UTF-16 that begins with its byte-order mark, as Excel and
    Windows write; without the mark. UnicodeDecodeError for other content.

    >>> decode_text(b"\\xef\\xbb\\xbfa dog"), decode_text("a dog".encode("utf-16"))
    ('a dog', 'a dog')
    """
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_wide else "utf-8").lstrip(_MARK)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text; nothing but a line feed ends one, as other separators of Unicode
    may stand in a caption.

    >>> split_lines("a\\u2028b\\r\\nc\\n")
    ['a\\u2028b', 'c']
    """
    lines = re.split(r"\r?\n", text)
    return lines if lines[-1] else lines[:-1]


def read_text(path: Path) -> str:
    """Return a text file's content; the encodings are those of `decode_text`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return decode_text(content)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield for each line of a file with JSON objects, ``"line 3"`` and the object, or what is
    wrong with it. NaN and infinities are None.
    """
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        if line.strip():
            yield f"line {number}", _json_object(line)


def _json_object(line: str) -> dict[str, Any] | str:
    try:
        # Python writes NaN and infinities into JSON where a number is missing.
        content = json.loads(line, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        return f"is not JSON that can be read ({one_line(error)})"
    return content if isinstance(content, dict) else "is not a JSON object {…}"


def read_json(path: Path, problem: str, remedy: str = "") -> dict[str, Any]:
    """Return the JSON object in a file; errors as in `reading`."""
    with reading(path, problem, remedy):
        content = json.loads(decode_text(path.read_bytes()))
        if not isinstance(content, dict):
            raise ValueError(f"a JSON object is expected, not {type(content).__name__}")
        return content


def _parse_yaml(text: str) -> Any:
    """Return the plain values that YAML says, by libyaml where it is built, which takes a tenth of
    the time.

    >>> _parse_yaml("train: {epochs: 3}")
    {'train': {'epochs': 3}}
    """
    # libyaml ends the process where lists are nested too deep. Every level takes one of these
    # characters.
    deep = sum(text.count(character) for character in "[{-?:") > _DEEP
    loader = (yaml.SafeLoader if deep else getattr(yaml, "CSafeLoader", yaml.SafeLoader))(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read_yaml_sections(path: Path, expected: str) -> dict[str, dict[str, Any]]:
    """Return the sections of a YAML file: names to keys with values."""
    with reading(path, "not readable YAML"):
        sections = _parse_yaml(decode_text(path.read_bytes()))
    if not isinstance(sections, dict) or not all(
        isinstance(section, dict) for section in sections.values()
    ):
        raise InputError(f"{path}: {expected}")
    for name, section in sections.items():
        for key in (name, *section):
            if not isinstance(key, str):
                raise InputError(f"{path}: in section {name!r}: {key!r} is no key; a key is a text")
    return sections
