"""Move the spare files of a group to a folder, and take moves and other decisions back."""

import json
import os
import shutil
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from channelhash.copies.moved import alike
from channelhash.copies.small_copies import SmallCopy, read_copies
from channelhash.duplicates.decisions import DecisionKind, Decisions, open_decisions
from channelhash.duplicates.groups import Identity, identity_of, is_raw, links_in
from channelhash.duplicates.keepers import path_of
from channelhash.errors import InputError
from channelhash.search.store import Item, Store
from channelhash.search.transfer import upsert_items
from channelhash.utils.files import atomic_path

#: Endings that darktable, RawTherapee, DxO and Google Takeout put behind the whole name of an image
#: to name the file that describes it.
_BEHIND_NAMES = (".xmp", ".pp3", ".dop", ".json")
#: Endings that Lightroom and iOS put in the place of the image's own ending.
_BEHIND_STEMS = (".xmp", ".aae")


class Moved(NamedTuple):
    """What became of items.

    Attributes:
        kind: of decision.
        paths: id -> where its file is now, or would be; empty where nothing was moved.
        problems: a line for each item that was left alone.

    >>> Moved("keep", {}, []).paths
    {}
    """

    kind: DecisionKind
    paths: dict[str, str]
    problems: list[str]


class _GroupImage(NamedTuple):
    """An item of a group.

    Attributes:
        item: in the store.
        path: of its file.
        copy: the small one; None if the file cannot be read.
    """

    item: Item
    path: str
    copy: SmallCopy | None


class _Move(NamedTuple):
    """An item to move.

    Attributes:
        item: in the store.
        paths: from where to where, of its file and then of each of its sidecars.
    """

    item: Item
    paths: list[tuple[Path, Path]]


class _Failure(NamedTuple):
    """A move that failed.

    Attributes:
        id: of the item.
        problem: what to tell.
        is_undone: whether all of the item's files are where they were.
    """

    id: str
    problem: str
    is_undone: bool


def folder_of(item: Item) -> Path:
    """Return the folder that an item's id is relative to; the root if its path does not end in
    the id.

    >>> folder_of(Item("a/b.jpg", {}, {"image": "/home/me/a/b.jpg"})).as_posix()
    '/home/me'
    """
    path = Path(path_of(item))
    parts = Path(item.id).parts
    if path.parts[-len(parts) :] == parts:
        return path.parents[len(parts) - 1]
    return Path(path.anchor)


def move_rest(
    store: Store, groups: Mapping[str, Sequence[str]], folder: Path, dry_run: bool = True
) -> Moved:
    """Move the files of items that are copies of another to a folder, with the sidecars that
    describe no other file, and take the items out of the store.

    A file keeps its path below its folder, see `folder_of`. These files stay: those that are no
    copy of the keeper now, such as files that were edited; all of a group whose keeper cannot be
    read; links, and files that links lead to; raw originals, unless the keeper is one. No file is
    overwritten.

    All moves are written down before the first one, so `undo_last` also takes back those of a
    killed process.

    Args:
        store: in a folder.
        groups: id of each keeper -> ids of the others.
        folder: outside the folders of the images, or hidden in them: files there are not indexed
            again.
        dry_run: only say what would be moved.

    Example::

        move_rest(store, {"a.jpg": ["a (1).jpg"]}, Path("duplicates"), dry_run=False)
    """
    with open_decisions(store, write=not dry_run) as decisions:
        planned, problems = _plan(store, decisions, groups, folder.absolute())
        if not dry_run and planned:
            number = decisions.add("move", {name: _log(move) for name, move in planned.items()})
            for failure in _carry_out(planned):
                problems.append(failure.problem)
                del planned[failure.id]
                if failure.is_undone:
                    decisions.remove(number, failure.id)
            store.delete(list(planned))
    return Moved("move", {name: str(move.paths[0][1]) for name, move in planned.items()}, problems)


def _plan(
    store: Store, decisions: Decisions, groups: Mapping[str, Sequence[str]], folder: Path
) -> tuple[dict[str, _Move], list[str]]:
    """Return the moves of the items that can go, by their ids, and a line for each other one."""
    images = _read_images(store, decisions, groups)
    targets, problems = _find_targets(images, groups, links_in(store), folder)
    planned = {}
    sidecars = _find_sidecars([images[name].path for name in targets])
    for name, target in targets.items():
        item, path, _ = images[name]
        paths = [(sidecar, target.with_name(sidecar.name)) for sidecar in sidecars[path]]
        reasons = [_why_not_there(to, folder) for _, to in paths]
        if any(reasons):
            problems.append(f"{name}: stays, {next(filter(None, reasons))}")
        else:
            planned[name] = _Move(item, [(Path(path), target), *paths])
    return planned, problems


def _read_images(
    store: Store, decisions: Decisions, groups: Mapping[str, Sequence[str]]
) -> dict[str, _GroupImage]:
    """Return id -> image of all items in some groups."""
    names = chain.from_iterable([keeper, *rest] for keeper, rest in groups.items())
    items = store.get(list(names))
    paths = [path_of(item) for item in items]
    copies = read_copies(paths, decisions.copies)
    return {
        item.id: _GroupImage(item, path, copy)
        for item, path, copy in zip(items, paths, copies, strict=True)
    }


def _find_targets(
    images: Mapping[str, _GroupImage],
    groups: Mapping[str, Sequence[str]],
    links: Mapping[Identity, str],
    folder: Path,
) -> tuple[dict[str, Path], list[str]]:
    """Return where the files can go, by id, and a line for each item that stays."""
    targets = dict[str, Path]()
    problems = list[str]()
    for keeper, rest in groups.items():
        for name in rest:
            target = _target_of(images[name], folder)
            if name in groups:
                reason = f"is to be kept instead of {', '.join(groups[name])}"
            else:
                reason = (
                    _why_it_stays(images[name], images[keeper], links)
                    or _why_no_copy(images[name], images[keeper])
                    or _why_not_there(target, folder)
                )
            if reason:
                problems.append(f"{name}: stays, {reason}")
            else:
                targets[name] = target
    return targets, problems


def _target_of(image: _GroupImage, folder: Path) -> Path:
    """Return where to move an image; raise an error if it would be indexed again there."""
    home = folder_of(image.item)
    is_inside = folder.is_relative_to(home) and len(home.parts) > 1
    if is_inside and not any(part.startswith(".") for part in folder.relative_to(home).parts):
        raise InputError(
            f"{folder}: lies in {home}, whose pictures are indexed; name a folder outside"
        )
    return folder / Path(image.path).relative_to(home)


def _why_not_there(target: Path, folder: Path) -> str:
    """Return why a file cannot be moved to a place; empty if it can."""
    if os.path.lexists(target):
        return f"{folder.name} holds {target.relative_to(folder).as_posix()} already"
    return ""


def _why_it_stays(image: _GroupImage, kept: _GroupImage, links: Mapping[Identity, str]) -> str:
    """Return why a file cannot go whatever it shows; empty if it can."""
    if os.path.islink(image.path):
        return "is a link, which frees nothing"
    identity = identity_of(image.path)
    if identity is not None and identity == identity_of(kept.path):
        return f"is the same file as {kept.item.id}"
    if identity is not None and identity in links:
        return f"the link {links[identity]} leads to it"
    if is_raw(image.path) and not is_raw(kept.path):
        return f"is a raw original, and {kept.item.id} is none"
    return ""


def _why_no_copy(image: _GroupImage, kept: _GroupImage) -> str:
    """Return why an image is no copy of the one to keep; empty if it is."""
    if image.copy is None or kept.copy is None:
        return f"it or {kept.item.id} cannot be read"
    is_copy = alike([kept.copy], [image.copy])[0, 0]
    return "" if is_copy else f"is no copy of {kept.item.id}"


def _find_sidecars(paths: Collection[str]) -> dict[str, list[Path]]:
    """Return the sidecars of each of the files that are to go.

    A file that also describes one that stays is no sidecar. One that describes several files that
    go belongs to the first.
    """
    names_in = cache(lambda folder: sorted(os.listdir(folder)))
    taken = set[str]()
    sidecars = {path: list[Path]() for path in paths}
    for path, own in sidecars.items():
        for file in _describing(path, names_in(os.path.dirname(path)), sidecars.keys()):
            if file not in taken and os.path.isfile(file):
                taken.add(file)
                own.append(Path(file))
    return sidecars


def _describing(path: str, names: Sequence[str], going: Set[str]) -> list[str]:
    """Return the files that describe one file that goes; those of its stem only if all files of the
    stem go. ``names`` are those in its folder, sorted.
    """
    folder, name = os.path.split(path)
    stem = os.path.splitext(name)[0]
    first = bisect_left(names, stem)
    last = bisect_left(names, stem + chr(sys.maxunicode))
    files = defaultdict[str, list[str]](list)
    for other in names[first:last]:
        files[_relation(other, name)].append(os.path.join(folder, other))
    if going >= set(files["shares its stem"]):
        return files["describes it"] + files["describes its stem"]
    return files["describes it"]


def _relation(other: str, name: str) -> str:
    """Return how a file relates to an image in the same folder.

    >>> _relation("a.jpg.xmp", "a.jpg"), _relation("a.xmp", "a.jpg"), _relation("a.png", "a.jpg")
    ('describes it', 'describes its stem', 'shares its stem')
    """
    stem = os.path.splitext(name)[0]
    other_stem, ending = os.path.splitext(other)
    ending = ending.lower()
    if other.startswith(f"{name}.") and ending in _BEHIND_NAMES:
        return "describes it"
    if other_stem != stem:
        return "none"
    if ending in _BEHIND_STEMS:
        return "describes its stem"
    return "none" if ending in _BEHIND_NAMES else "shares its stem"


def _carry_out(planned: Mapping[str, _Move]) -> list[_Failure]:
    """Move files, and return what failed."""
    failures = []
    for name, move in planned.items():
        try:
            for path, target in move.paths:
                _move(path, target)
        except OSError as error:
            with suppress(OSError):
                for path, target in move.paths:
                    if not os.path.lexists(path):
                        _move(target, path)
            problem = f"{name}: stays, cannot be moved ({error.strerror or error})"
            is_undone = all(os.path.lexists(path) for path, _ in move.paths)
            failures.append(_Failure(name, problem, is_undone))
    return failures


def _log(move: _Move) -> str:
    """Return all that `undo_last` needs."""
    item = move.item
    (_, target), *sidecars = move.paths
    log = {
        "target": str(target),
        "metadata": item.metadata,
        "codes": {key: row.tobytes().hex() for key, row in item.codes.items()},
        "projections": {key: row.tobytes().hex() for key, row in item.projections.items()},
        "sidecars": [[str(path), str(to)] for path, to in sidecars],
    }
    return json.dumps(log)


def _move(path: Path, target: Path) -> None:
    """Move a file to where there is none. Between file systems the copy is complete before the file
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


def undo_last(store: Store) -> Moved | None:
    """Take the last decision back, and return it; None if nothing is decided. Files move back, and
    their items are in the store again.

    What cannot be moved back now is left for another `undo_last`.

    Example::

        undo_last(store)
    """
    with open_decisions(store, write=True) as decisions:
        last = decisions.last()
        if not last:
            return None
        moved = Moved(last[0][1], {}, [])
        for number, kind, name, log in last:
            if kind == "move":
                try:
                    problem = _take_back(store, name, json.loads(log), moved.paths)
                except OSError as error:
                    reason = error.strerror or error
                    moved.problems.append(f"{name}: cannot be moved back ({reason}); undo again")
                    continue
                if problem:
                    moved.problems.append(f"{name}: {problem}")
            decisions.remove(number, name)
    return moved


def _take_back(store: Store, name: str, log: dict[str, Any], paths: dict[str, str]) -> str:
    """Move an item's file and sidecars back, unless they were never moved, and put the item into
    the store and its path into ``paths``. Return what could not be done.
    """
    path = Path(log["metadata"]["image"])
    problem = _move_back(Path(log["target"]), path)
    if problem:
        return problem
    problems = [_move_back(Path(target), Path(to)) for to, target in log.get("sidecars", [])]
    codes = {key: np.frombuffer(bytes.fromhex(row), np.uint8) for key, row in log["codes"].items()}
    projections = {
        key: np.frombuffer(bytes.fromhex(row), np.uint8) for key, row in log["projections"].items()
    }
    upsert_items(store, [Item(name, codes, log["metadata"], projections)])
    paths[name] = str(path)
    if any(problems):
        return f"is back, but of its sidecars, {'; '.join(filter(None, problems))}"
    return ""


def _move_back(target: Path, path: Path) -> str:
    """Move a file back to where it was, unless it is there, or return why that cannot be done."""
    if path.exists():
        if target.exists() and target.stat().st_size:
            return f"{path.name} is there again, {target} stays"
        target.unlink(missing_ok=True)  # an empty one of a killed process
    elif not target.exists():
        return f"{target} is not there any more"
    else:
        _move(target, path)
    return ""
