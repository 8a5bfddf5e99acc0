"""What people decide of near-duplicates, and moves that can be taken back.

They are kept in ``duplicates.sqlite`` in the store's folder, together with the small copies of
`channelhash.copies.small_copies`. Without the file, pictures are read and asked about again.
"""

import json
import os
import shutil
import sqlite3
import sys
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from channelhash.copies.small_copies import SmallCopy, alike, read_copies
from channelhash.errors import InputError
from channelhash.search import find_or_keep
from channelhash.search.sqlite.folder import StoreFolder, connect
from channelhash.search.store import Item, Store
from channelhash.search.transfer import upsert_items
from channelhash.utils.files import atomic_path
from channelhash.utils.image_files import RAW_ENDINGS

#: What people decide: that items are different, that all of them stay, that all but one are moved.
_Kind = Literal["different", "keep", "move"]

#: Endings of files that describe a picture: behind its whole name, as darktable, RawTherapee, DxO
#: and Google Takeout write them, and in place of its own ending, as Lightroom and iOS do.
_BEHIND_NAMES = (".xmp", ".pp3", ".dop", ".json")
_BEHIND_STEMS = (".xmp", ".aae")
#: Device and number of a file, whatever its names.
_Identity = tuple[int, int]

# Pairs of `joined` connect what is alike of what has been compared. Rows of `decisions` of one
# number are one decision; `log` says how to take the move of an item back.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS copies (
    path TEXT PRIMARY KEY, state TEXT NOT NULL, copy BLOB NOT NULL, compared INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS joined (one TEXT NOT NULL, other TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS decisions (number INTEGER NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, log TEXT NOT NULL);
"""


@contextmanager
def open_decisions(store: Store, write: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the file of a store; of one that is no folder, or can only be read, a copy in memory
    unless ``write``.

    >>> import tempfile
    >>> from channelhash.search import open_store
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, n_bits=8) as store:
    ...     store.add(["a", "b"], np.zeros((2, 1), np.uint8))
    ...     decide(store, "different", ["a", "b"])
    ...     with open_decisions(store) as opened:
    ...         decisions(opened)
    {'a': {1}, 'b': {1}}
    """
    folder = StoreFolder(find_or_keep(Path(store.address)))
    place = folder.path / "duplicates.sqlite"
    stays = folder.database.exists() and store.writable
    if write and not stays:
        raise InputError(
            f"{store.address}: keeps no decisions; use a store in a folder that can be written to"
        )
    try:
        with closing(connect(place if stays else None, create=True)) as opened:
            if not stays and place.exists():
                with closing(connect(place, read_only=True)) as source:
                    source.backup(opened)
            opened.executescript(_SCHEMA)
            yield opened
    except sqlite3.DatabaseError as error:
        remedy = (
            "try again"
            if isinstance(error, sqlite3.OperationalError)
            else "remove it, and begin anew"
        )
        raise InputError(f"{place}: cannot be used ({error}); {remedy}") from None


def decisions(opened: sqlite3.Connection, *kinds: _Kind) -> dict[str, set[int]]:
    """Return the numbers of the decisions about each item: of some kinds, or that items are
    different or stay.

    >>> with closing(connect(None)) as opened:
    ...     _ = opened.executescript(_SCHEMA)
    ...     decisions(opened)
    {}
    """
    numbers: dict[str, set[int]] = {}
    for name, number, kind in opened.execute("SELECT id, number, kind FROM decisions"):
        if kind in (kinds or ("different", "keep")):
            numbers.setdefault(name, set()).add(number)
    return numbers


def decide(store: Store, kind: _Kind, ids: Sequence[str]) -> None:
    """Keep a decision about items, which must be there; see `open_decisions` for an example."""
    if len(ids) < 2:
        raise InputError("a decision is about two items or more; name each of the group")
    store.get(ids)  # refuses ids that are not there
    with open_decisions(store, write=True) as opened:
        _insert(opened, kind, dict.fromkeys(ids, ""))


def _insert(opened: sqlite3.Connection, kind: _Kind, logs: dict[str, str]) -> int:
    with opened:
        opened.execute("BEGIN IMMEDIATE")
        number: int = opened.execute("SELECT ifnull(max(number), 0) + 1 FROM decisions").fetchone()[
            0
        ]
        rows = [(number, kind, name, log) for name, log in logs.items()]
        opened.executemany("INSERT INTO decisions VALUES (?, ?, ?, ?)", rows)
    return number


class Moved(NamedTuple):
    """What became of items.

    Attributes:
        kind: of decision.
        paths: id -> where its file is or would be now; where nothing was moved, nothing.
        problems: a line for each item that was left alone.

    >>> Moved("keep", {}, []).paths
    {}
    """

    kind: _Kind
    paths: dict[str, str]
    problems: list[str]


def folder_of(item: Item) -> Path:
    """Return the folder that an item's id is relative to; the root for an id of another kind.

    >>> folder_of(Item("a/b.jpg", {}, {"image": "/home/me/a/b.jpg"})).as_posix()
    '/home/me'
    """
    path = Path(str(item.metadata.get("image") or ""))
    depth = len(Path(item.id).parts)
    return (
        path.parents[depth - 1] if path.parts[-depth:] == Path(item.id).parts else Path(path.anchor)
    )


def identity_of(path: str) -> _Identity | None:
    """Return what a file and all links to it share; None where there is no file.

    >>> identity_of("none.jpg") is None
    True
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def links_in(store: Store) -> dict[_Identity, str]:
    """Return the file that each symbolic link among a store's pictures leads to -> the link's id.

    It takes one pass over the store.

    >>> import tempfile
    >>> from channelhash.search import open_store
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, n_bits=8) as store:
    ...     links_in(store)
    {}
    """
    links = {}
    for item in store.listed():
        path = item.metadata.get("image")
        if isinstance(path, str) and os.path.islink(path):
            identity = identity_of(path)
            if identity is not None:
                links[identity] = item.id
    return links


def is_raw(path: str) -> bool:
    """Return whether a picture file is a raw original.

    >>> is_raw("RAW/IMG_1.CR2"), is_raw("IMG_1.CR2.jpg")
    (True, False)
    """
    return os.path.splitext(path)[1].lower() in RAW_ENDINGS


class _Move(NamedTuple):
    """A picture to move, and for its file and then each of its sidecars, from where to where."""

    item: Item
    paths: list[tuple[Path, Path]]


def move_rest(
    store: Store, groups: Mapping[str, Sequence[str]], folder: Path, dry_run: bool = True
) -> Moved:
    """Move the files of items that are copies of another to a folder, with the sidecars that
    describe no other file, and take the items out of the store.

    A file keeps its path below its folder, see `folder_of`. What is no copy of the keeper now, such
    as a file that was edited, stays, and so does everything where the keeper cannot be read; so do
    links and files that they lead to, and raw originals unless another one is kept. Nothing is
    written over.

    All moves are written down before the first, so that `undo` also takes back those of a killed
    process.

    Args:
        store: in a folder.
        groups: id of each keeper -> ids of the others.
        folder: outside of the pictures' folders, or hidden in there: what is there is not indexed
            again.
        dry_run: only say what would be moved.

    Example::

        move_rest(store, {"a.jpg": ["a (1).jpg"]}, Path("duplicates"), dry_run=False)
    """
    with open_decisions(store, write=not dry_run) as opened:
        planned, problems = _plan(store, opened, groups, folder.absolute())
        if not dry_run and planned:
            number = _insert(opened, "move", {name: _log(move) for name, move in planned.items()})
            failures = _carry_out(planned)
            for name, (line, is_back) in failures.items():
                problems.append(line)
                del planned[name]
                if is_back:
                    opened.execute(
                        "DELETE FROM decisions WHERE number = ? AND id = ?", (number, name)
                    )
            store.delete(list(planned))
    return Moved("move", {name: str(move.paths[0][1]) for name, move in planned.items()}, problems)


def _plan(
    store: Store,
    opened: sqlite3.Connection,
    groups: Mapping[str, Sequence[str]],
    folder: Path,
) -> tuple[dict[str, _Move], list[str]]:
    """Return the moves of the items that can go, by their ids, and a line for each other one."""
    names = [name for keeper, rest in groups.items() for name in (keeper, *rest)]
    items = {item.id: item for item in store.get(names)}
    paths = {name: str(item.metadata.get("image") or "") for name, item in items.items()}
    copies = dict(zip(paths, read_copies(opened, list(paths.values())), strict=True))
    links = links_in(store)
    going = dict[str, Path]()
    problems = list[str]()
    for keeper, name in ((keeper, name) for keeper, rest in groups.items() for name in rest):
        home = folder_of(items[name])
        _check_outside(folder, home)
        target = folder / Path(paths[name]).relative_to(home)
        reason = (
            _why_it_stays(paths[name], paths[keeper], keeper, links)
            or _why_no_copy(copies[name], copies[keeper], keeper)
            or _why_not_there(target, folder)
        )
        if name in groups:
            reason = f"is to be kept instead of {', '.join(groups[name])}"
        if reason:
            problems.append(f"{name}: stays, {reason}")
        else:
            going[name] = target
    return _add_sidecars(items, going, folder, problems), problems


def _add_sidecars(
    items: Mapping[str, Item], going: Mapping[str, Path], folder: Path, problems: list[str]
) -> dict[str, _Move]:
    """Return the moves of items that can go to their targets, with their sidecars; where one of
    these would be written over, a line joins the problems.
    """
    paths = {name: str(items[name].metadata["image"]) for name in going}
    sidecars = _find_sidecars(list(paths.values()))
    planned = {}
    for name, target in going.items():
        beside = [(path, target.with_name(path.name)) for path in sidecars[paths[name]]]
        reasons = [reason for _, to in beside if (reason := _why_not_there(to, folder))]
        if reasons:
            problems.append(f"{name}: stays, {reasons[0]}")
        else:
            planned[name] = _Move(items[name], [(Path(paths[name]), target), *beside])
    return planned


def _why_not_there(target: Path, folder: Path) -> str:
    """Return why a file cannot be moved to a place; empty if it can."""
    if os.path.lexists(target):
        return f"{folder.name} holds {target.relative_to(folder).as_posix()} already"
    return ""


def _check_outside(folder: Path, home: Path) -> None:
    """Refuse a folder whose files would be indexed again."""
    is_inside = folder.is_relative_to(home) and len(home.parts) > 1
    if is_inside and not any(part.startswith(".") for part in folder.relative_to(home).parts):
        raise InputError(
            f"{folder}: lies in {home}, whose pictures are indexed; name a folder outside"
        )


def _why_it_stays(path: str, kept: str, keeper: str, links: Mapping[_Identity, str]) -> str:
    """Return why a file cannot go whatever it shows; empty if it can."""
    identity = identity_of(path)
    if os.path.islink(path):
        return "is a link, which frees nothing"
    if identity is not None and identity == identity_of(kept):
        return f"is the same file as {keeper}"
    if identity is not None and identity in links:
        return f"the link {links[identity]} leads to it"
    if is_raw(path) and not is_raw(kept):
        return f"is a raw original, and {keeper} is none"
    return ""


def _why_no_copy(copy: SmallCopy | None, kept: SmallCopy | None, keeper: str) -> str:
    """Return why a picture is no copy of the one to keep; empty if it is."""
    if copy is not None and kept is not None and alike([kept], [copy])[0, 0]:
        return ""
    return f"is no copy of {keeper} now, or one of them cannot be read"


def _find_sidecars(paths: Collection[str]) -> dict[str, list[Path]]:
    """Return the sidecars of each of some files that are to go; one that also describes a file that
    stays is none, and one of several that go is the first one's.
    """

    @cache
    def names_in(folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    taken = set[str]()
    sidecars = {path: list[Path]() for path in paths}
    for path, own in sidecars.items():
        folder, name = os.path.split(path)
        stem = os.path.splitext(name)[0]
        names = names_in(folder)
        beside = names[bisect_left(names, stem) : bisect_left(names, stem + chr(sys.maxunicode))]
        of_name, of_stem, described = _sort_by_name(name, beside)
        if all(os.path.join(folder, other) in sidecars for other in described):
            of_name += of_stem
        for file in (os.path.join(folder, other) for other in of_name):
            if file not in taken and os.path.isfile(file):
                taken.add(file)
                own.append(Path(file))
    return sidecars


def _sort_by_name(name: str, beside: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return of the files beside a picture those that describe it, those that describe all files of
    its stem, and these files.
    """
    stem = os.path.splitext(name)[0]
    of_name = list[str]()
    of_stem = list[str]()
    described = list[str]()
    for other in beside:
        other_stem, ending = os.path.splitext(other)
        if other.startswith(f"{name}.") and ending.lower() in _BEHIND_NAMES:
            of_name.append(other)
        elif other_stem == stem and ending.lower() in _BEHIND_STEMS:
            of_stem.append(other)
        elif other_stem == stem and ending.lower() not in _BEHIND_NAMES:
            described.append(other)
    return of_name, of_stem, described


def _carry_out(planned: Mapping[str, _Move]) -> dict[str, tuple[str, bool]]:
    """Move files; return of each item that cannot be moved a line, and whether all of its files are
    where they were.
    """
    failures = {}
    for name, move in planned.items():
        try:
            for path, target in move.paths:
                _move(path, target)
        except OSError as error:
            with suppress(OSError):
                for path, target in move.paths:
                    if not os.path.lexists(path):
                        _move(target, path)
            line = f"{name}: stays, cannot be moved ({error.strerror or error})"
            failures[name] = line, all(os.path.lexists(path) for path, _ in move.paths)
    return failures


def _log(move: _Move) -> str:
    """Return all that `undo` needs."""
    item, (_, target), *sidecars = move.item, *move.paths
    codes = {key: row.tobytes().hex() for key, row in item.codes.items()}
    projections = {key: row.tobytes().hex() for key, row in item.projections.items()}
    log = {
        "target": str(target),
        "metadata": item.metadata,
        "codes": codes,
        "projections": projections,
        "sidecars": [[str(path), str(to)] for path, to in sidecars],
    }
    return json.dumps(log)


def _move(path: Path, target: Path) -> None:
    """Move a file to where none is; between file systems the copy is complete before the file
    goes.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch(exist_ok=False)  # fails if somebody else was quicker
    try:
        try:
            os.replace(path, target)
        except OSError:
            with atomic_path(target) as temporary:
                shutil.copy2(path, temporary)
            path.unlink()
    except BaseException:
        if path.exists() or not target.stat().st_size:
            target.unlink()
        raise


def undo(store: Store) -> Moved | None:
    """Take the last decision back, and return it; files move back, and their items are again in the
    store.

    What cannot be moved back now is left for another `undo`. Returns None if nothing is decided.

    Example::

        undo(store)
    """
    with open_decisions(store, write=True) as opened:
        last = "WHERE number = (SELECT max(number) FROM decisions)"
        rows: list[tuple[int, _Kind, str, str]] = opened.execute(
            f"SELECT * FROM decisions {last}"
        ).fetchall()
        if not rows:
            return None
        moved = Moved(rows[0][1], {}, [])
        for number, kind, name, log in rows:
            try:
                problem = (
                    _take_back(store, name, json.loads(log), moved.paths) if kind == "move" else ""
                )
            except OSError as error:
                moved.problems.append(
                    f"{name}: cannot be moved back ({error.strerror or error}); undo again"
                )
                continue
            moved.problems.extend(filter(None, [problem]))
            opened.execute("DELETE FROM decisions WHERE number = ? AND id = ?", (number, name))
    return moved


def _take_back(store: Store, name: str, log: dict[str, Any], paths: dict[str, str]) -> str:
    """Move the file of an item and its sidecars back, unless they were never moved, and put the
    item into the store; or say why not.
    """
    path = Path(log["metadata"]["image"])
    if problem := _move_back(Path(log["target"]), path):
        return f"{name}: {problem}"
    lines = [_move_back(Path(target), Path(beside)) for beside, target in log.get("sidecars", [])]
    codes = {key: np.frombuffer(bytes.fromhex(row), np.uint8) for key, row in log["codes"].items()}
    projections = {
        key: np.frombuffer(bytes.fromhex(row), np.int8) for key, row in log["projections"].items()
    }
    upsert_items(store, [Item(name, codes, log["metadata"], projections)])
    paths[name] = str(path)
    problems = "; ".join(filter(None, lines))
    return problems and f"{name}: is back, but of its sidecars, {problems}"


def _move_back(target: Path, path: Path) -> str:
    """Move a file back to where it was, unless it is there; or say why not."""
    if path.exists():
        if target.exists() and target.stat().st_size:
            return f"{path.name} is there again, {target} stays"
        target.unlink(missing_ok=True)  # an empty one of a killed process
    elif not target.exists():
        return f"{target} is not there any more"
    else:
        _move(target, path)
    return ""
