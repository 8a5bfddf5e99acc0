"""What people decide of near-duplicates, and moves that can be taken back.

It lies in ``duplicates.sqlite`` in the store's folder, beside what `channelhash.search.copies`
keeps there. Without the file, pictures are read and asked about again.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from channelhash.errors import InputError
from channelhash.search import find_or_keep
from channelhash.search.copies import alike, read_copies
from channelhash.search.sqlite.folder import StoreFolder, connect
from channelhash.search.store import Item, Store
from channelhash.search.transfer import upsert_items
from channelhash.utils.files import atomic_path

#: What people decide: that items are different, that all of them stay, that all but one are moved.
_Kind = Literal["different", "keep", "move"]

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


def move_rest(
    store: Store, groups: Mapping[str, Sequence[str]], folder: Path, dry_run: bool = True
) -> Moved:
    """Move the files of items that are copies of another to a folder, and take the items out of the
    store.

    A file keeps its path below its folder, see `folder_of`. What is no copy of the keeper now, such
    as a file that was edited, stays, and so does everything where the keeper cannot be read;
    nothing is written over.

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
    folder, planned, problems = folder.absolute(), dict[str, tuple[Item, Path]](), list[str]()
    names = [name for keeper, rest in groups.items() for name in (keeper, *rest)]
    items = {item.id: item for item in store.get(names)}
    paths = {name: str(item.metadata.get("image") or "") for name, item in items.items()}
    with open_decisions(store, write=not dry_run) as opened:
        copies = dict(zip(paths, read_copies(opened, list(paths.values())), strict=True))
        for keeper, name in ((keeper, name) for keeper, rest in groups.items() for name in rest):
            first, copy, home = copies[keeper], copies[name], folder_of(items[name])
            if (
                folder.is_relative_to(home)
                and len(home.parts) > 1
                and not _is_hidden(folder.relative_to(home))
            ):
                raise InputError(
                    f"{folder}: lies in {home}, whose pictures are indexed; name a folder outside"
                )
            target = folder / Path(paths[name]).relative_to(home)
            if first is None or copy is None or not alike([first], [copy])[0, 0]:
                problems.append(
                    f"{name}: stays, is no copy of {keeper} now, or one of them cannot be read"
                )
            elif os.path.samefile(paths[name], paths[keeper]):
                problems.append(f"{name}: stays, is the same file as {keeper}")
            elif os.path.lexists(target):
                problems.append(f"{name}: stays, {folder.name} holds such a file already")
            else:
                planned[name] = items[name], target
        if not dry_run and planned:
            number = _insert(
                opened,
                "move",
                {name: _log(item, target) for name, (item, target) in planned.items()},
            )
            for name, (item, target) in list(planned.items()):
                try:
                    _move(Path(str(item.metadata["image"])), target)
                except OSError as error:
                    del planned[name]
                    problems.append(f"{name}: stays, cannot be moved ({error.strerror or error})")
                    opened.execute(
                        "DELETE FROM decisions WHERE number = ? AND id = ?", (number, name)
                    )
            store.delete(list(planned))
    return Moved("move", {name: str(target) for name, (_, target) in planned.items()}, problems)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _log(item: Item, target: Path) -> str:
    """Return all that `undo` needs."""
    codes = {key: row.tobytes().hex() for key, row in item.codes.items()}
    projections = {key: row.tobytes().hex() for key, row in item.projections.items()}
    log = {
        "target": str(target),
        "metadata": item.metadata,
        "codes": codes,
        "projections": projections,
    }
    return json.dumps(log)


def _move(path: Path, target: Path) -> None:
    """Move a file to where none is; between file systems the copy is complete before the file goes."""
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
    """Move the file of an item back, unless that was never moved, and put the item into the store;
    or say why not.
    """
    target, path = Path(log["target"]), Path(log["metadata"]["image"])
    if path.exists():
        if target.exists() and target.stat().st_size:
            return f"{name}: its file is there again, {target} stays"
        target.unlink(missing_ok=True)  # an empty one of a killed process
    elif not target.exists():
        return f"{name}: {target} is not there any more"
    else:
        _move(target, path)
    codes = {key: np.frombuffer(bytes.fromhex(row), np.uint8) for key, row in log["codes"].items()}
    projections = {
        key: np.frombuffer(bytes.fromhex(row), np.int8) for key, row in log["projections"].items()
    }
    upsert_items(store, [Item(name, codes, log["metadata"], projections)])
    paths[name] = str(path)
    return ""
