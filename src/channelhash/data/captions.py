"""Captions of images in a file of their own: a table, or lines ``name#0<TAB>caption``."""

import re
from collections.abc import Sequence
from pathlib import Path

from channelhash.data.tabular_files import ENDINGS, read_rows
from channelhash.errors import InputError

#: Columns that may hold the image's file and the caption, in any case; the first that a table has counts.
FILE_COLUMNS = ("image", "file", "file_name", "filename", "path", "id")
CAPTION_COLUMNS = ("text", "caption", "captions", "description")

_NUMBERED = re.compile(r"(?P<name>.+?)(#\d+)?")


def read_captions(path: Path) -> dict[str, list[str]]:
    """Read image file -> its captions, in the order of the file; empty captions are left out.

    Args:
        path: a table (``.csv``, ``.tsv``, ``.jsonl``, ``.parquet``) with a column of `FILE_COLUMNS` and one of
            `CAPTION_COLUMNS`, whose cells are a caption or a list of them; or a text file of lines
            ``name<TAB>caption`` or ``name#0<TAB>caption``, as of Flickr8k. An image may have several rows.

    Raises:
        InputError: the file is missing, has no such columns or a line without a tab, or holds no caption.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tokens = Path(folder, "tokens.txt")
    ...     _ = tokens.write_text("a.jpg#0\\tA dog .\\na.jpg#1\\tIt runs .\\n")
    ...     read_captions(tokens)
    {'a.jpg': ['A dog .', 'It runs .']}
    """
    pairs = _of_table(path) if path.suffix.lower() in ENDINGS else _of_lines(path)
    captions: dict[str, list[str]] = {}
    for name, caption in pairs:
        if name and caption.strip():
            captions.setdefault(name.removeprefix("./"), []).append(caption.strip())
    if not captions:
        raise InputError(f"{path}: holds no captions")
    return captions


def match_captions(
    captions: dict[str, list[str]], names: Sequence[str], path: Path
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the captions of each image, and a line if some are of images that are not there.

    A caption's file is an image's path, or the end of one path only: ``1.jpg`` is ``2019/1.jpg``.

    Args:
        captions: from `read_captions`.
        names: paths of the images relative to their folder, with ``/``.
        path: where the captions are from, for the line.

    >>> match_captions({"1.jpg": ["sea"], "lost.jpg": ["x", "y"]}, ["2019/1.jpg", "2.jpg"], Path("c.csv"))
    ([('sea',), ()], ['c.csv: 2 captions are of 1 picture that is not there: lost.jpg'])
    """
    rows = {name: row for row, name in enumerate(names)}
    by_ending: dict[str, list[int]] = {}
    for name, row in rows.items():
        by_ending.setdefault(name.rpartition("/")[2], []).append(row)
    found: list[list[str]] = [[] for _ in names]
    lost: list[str] = []
    for name, texts in captions.items():
        alike = [row for row in by_ending.get(name.rpartition("/")[2], []) if _ends_alike(names[row], name)]
        of = [rows[name]] if name in rows else alike
        if len(of) == 1:
            found[of[0]] += texts
        else:
            lost.append(name)
    lines = []
    if lost:
        count = sum(len(captions[name]) for name in lost)
        who = "1 caption is" if count == 1 else f"{count} captions are"
        where = "1 picture that is not there" if len(lost) == 1 else f"{len(lost)} pictures that are not there"
        lines = [f"{path}: {who} of {where}: {lost[0]}" + " …" * (len(lost) > 1)]
    return [tuple(texts) for texts in found], lines


def _ends_alike(one: str, other: str) -> bool:
    """Return whether one path is the end of the other."""
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")


def _of_table(path: Path) -> list[tuple[str, str]]:
    columns, _ = read_rows(path, [])
    lower = {column.lower(): column for column in reversed(columns)}
    file = next((lower[name] for name in FILE_COLUMNS if name in lower), None)
    caption = next((lower[name] for name in CAPTION_COLUMNS if name in lower), None)
    if file is None or caption is None:
        wanted, what = (FILE_COLUMNS, "the picture") if file is None else (CAPTION_COLUMNS, "the caption")
        raise InputError(
            f"{path}: has no column for {what}; name one {' or '.join(wanted[:2])} (it has {', '.join(columns)})"
        )
    pairs = []
    for row in read_rows(path, [file, caption])[1]:
        if row.problem:
            raise InputError(f"{path}, {row.place}: {row.problem[1]}; mend the row")
        cell = row.cells[caption]
        texts = cell if isinstance(cell, list) else [cell]
        pairs += [(str(row.cells[file] or ""), str(text)) for text in texts if text is not None]
    return pairs


def _of_lines(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file of captions") from None
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{path}: not a text file in UTF-8; captions are a table or lines name<TAB>caption") from None
    pairs = []
    for number, line in enumerate(lines, start=1):
        name, tab, caption = line.partition("\t")
        if line.strip() and not tab:
            raise InputError(f"{path}, line {number}: has no tab between the picture's name and its caption")
        numbered = _NUMBERED.fullmatch(name.strip())
        pairs.append((numbered["name"] if numbered else "", caption))
    return pairs
