"""Patterns of paths to leave out, as in a ``.gitignore``."""

import re
from collections.abc import Callable, Sequence

from channelhash.errors import InputError

# Wildcards -> regular expressions; what is none of them stands for itself.
_STARS = re.compile(r"(?P<folders>\*\*/)|(?P<any>\*\*)|(?P<name>\*)")
_WILDCARDS = re.compile(_STARS.pattern + r"|(?P<one>\?)|\[(?P<out>!?)(?P<set>[^]]+)]")


def match_any(patterns: Sequence[str]) -> Callable[[str, bool], bool]:
    """Return a function (relative path with ``/``, is it a folder) -> does any of the patterns match it.

    A pattern without ``/`` matches names at any depth, another one paths from the top. ``*`` and ``?`` match within a
    name, ``**`` across folders, ``[ab]`` one of the characters; a ``/`` at the end matches folders only. What lies in a
    folder that matches is for the caller to leave out.

    Raises:
        InputError: a pattern is empty or begins with ``!``.

    >>> matches = match_any(["*.gif", "raw/", "2019/**/draft-?.jpg"])
    >>> matches("a/b.gif", False), matches("raw", False), matches("a/raw", True)
    (True, False, True)
    >>> matches("2019/draft-1.jpg", False), matches("2019/a/b/draft-2.jpg", False), matches("a/2019/draft-1.jpg", False)
    (True, True, False)
    """
    both, folders_only = list[str](), list[str]()
    for pattern in patterns:
        if not pattern.strip("/") or pattern.startswith("!"):
            raise InputError(f"--exclude {pattern!r}: is no pattern of paths to leave out, such as '*.gif' or 'raw/'")
        (folders_only if pattern.endswith("/") else both).append(_expression(pattern))
    files = re.compile("|".join(both) or r"(?!)", re.DOTALL)
    folders = re.compile("|".join([*both, *folders_only]) or r"(?!)", re.DOTALL)
    return lambda path, is_folder: (folders if is_folder else files).fullmatch(path) is not None


def star_expression(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern in which ``*`` alone is special: within a name, or as ``**`` across folders.

    >>> matches = star_expression("shards [2019]/*.tar").fullmatch
    >>> matches("shards [2019]/a.tar") is not None, matches("shards 2/a.tar") is not None
    (True, False)
    """
    return re.compile(_translated(_STARS, pattern), re.DOTALL)


def _expression(pattern: str) -> str:
    body = pattern.rstrip("/")
    return ("" if "/" in body else "(?:.*/)?") + _translated(_WILDCARDS, body.removeprefix("/"))


def _translated(wildcards: re.Pattern[str], pattern: str) -> str:
    made, end = "", 0
    for found in wildcards.finditer(pattern):
        made += re.escape(pattern[end : found.start()]) + _replacement(found)
        end = found.end()
    return made + re.escape(pattern[end:])


def _replacement(found: re.Match[str]) -> str:
    if found.lastgroup == "set":
        return f"[{'^/' if found['out'] else ''}{re.escape(found['set']).replace(chr(92) + '-', '-')}]"
    return {"folders": "(?:.*/)?", "any": ".*", "name": "[^/]*", "one": "[^/]"}[found.lastgroup or ""]
