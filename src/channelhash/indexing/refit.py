"""Fit the codes of a store anew to the items that it holds now, and encode them all again.

The new store is made beside the old one and takes its place in one step. Killed before that, the old one is as it was,
and the same command goes on with the new one; killed after it, the same command removes what is left of the old one.
"""

import ctypes
import errno
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from channelhash.data.records import Items, Records
from channelhash.errors import InputError
from channelhash.indexing.changes import STATE
from channelhash.indexing.encode import index_source
from channelhash.indexing.fit import FittedCodes, NewCodes, fit_source
from channelhash.indexing.source import Source
from channelhash.models import load_model
from channelhash.models.description import FEATURES, read_description
from channelhash.models.fitted import Codes
from channelhash.search import open_store
from channelhash.search.local.folder import StoreFolder, read_facts
from channelhash.search.local.indexing_run import hold_run
from channelhash.search.local.tables import connect, read_state
from channelhash.search.photo_folders import find_or_keep, is_store
from channelhash.search.store import Listed
from channelhash.utils.environment import pick_device
from channelhash.utils.files import POSIX, locked, write_text
from channelhash.utils.progress import StageProgress, no_stage_progress

# In the folder of a store that is being made: of which model, and how it is fitted.
_MARK = ".refit.json"
_EXCHANGE, _HERE = 2, -100  # RENAME_EXCHANGE and AT_FDCWD of renameat2(2)


class Refitted(NamedTuple):
    """A store that was fitted anew.

    Attributes:
        items: its items, all encoded again.
        seconds: time of the whole.

    >>> Refitted(3, 0.5).items
    3
    """

    items: int
    seconds: float


def refit_store(
    address: str, codes: Codes = "auto", n_bits: int | None = None, progress: StageProgress = no_stage_progress
) -> Refitted:
    """Fit the codes of a store anew to its items, and encode all of them again.

    Args:
        address: a store in a folder, whose codes were fitted.
        codes: how, see `models.fitted.fit_codes`.
        n_bits: code length; as it was if None.
        progress: stage -> its callback.

    Raises:
        InputError: there is no such store, its codes are a run's, it holds features alone, or another process has it
            open or writes to it; or an item cannot be read. Then the store is left as it is.
    """
    folder = find_or_keep(Path(address))
    if "://" in address or not is_store(folder):
        raise InputError(f"{address}: no store in a folder; make one with `channelhash index create {address} SOURCE`")
    began = time.perf_counter()
    new, made_by = _settings(folder, codes, n_bits)
    beside = folder.with_name(f"{folder.name}.refit")
    with hold_run(folder, progress) as telling:
        _tidy(folder, beside)
        version, n_items = _make(folder, beside, new, made_by, telling)
        _take_its_place(folder, beside, version)
        _tidy(folder, beside)
    return Refitted(n_items, time.perf_counter() - began)


def _settings(folder: Path, codes: Codes, n_bits: int | None) -> tuple[NewCodes, dict[str, Any]]:
    """Return (how codes are fitted now, what the store's model says of itself)."""
    file = folder / "model" / "config.json"
    description = read_description(file) if file.exists() else {}
    if description.get("name") != "fitted":
        raise InputError(f"{folder}: its codes are those of a run, not fitted; train again, and make another store")
    former = description["architecture"]
    if former["encoder"] == FEATURES:
        raise InputError(f"{folder}: was made of features, which it does not keep; make a new store of them")
    word = former.get("extractors") or former["encoder"]
    return NewCodes(word, codes, n_bits or description["n_bits"], former["seed"]), description


def _tidy(folder: Path, beside: Path) -> None:
    """Remove what a refit leaves that was killed after, or long before, it put the new store in its place."""
    (folder / _MARK).unlink(missing_ok=True)
    if beside.exists() and not (beside / _MARK).exists():
        shutil.rmtree(beside)


def _make(
    folder: Path, beside: Path, new: NewCodes, made_by: dict[str, Any], progress: StageProgress
) -> tuple[int, int]:
    """Make the new store, or go on with it; return (version of the old one that it was made of, number of items)."""
    with closing(open_store(folder)) as store:
        version = store.version
        items = sorted(store.listed(), key=lambda item: item.id)
    facts = read_facts(StoreFolder(folder))
    sources = _sources(folder, items)
    mark = json.dumps([new.encoder, new.codes, new.n_bits, new.seed, made_by], sort_keys=True)
    if (beside / _MARK).exists() and (beside / _MARK).read_text(encoding="utf-8") != mark:
        shutil.rmtree(beside)
    if beside.exists():
        fitted = FittedCodes(load_model(beside))
    else:
        fitted = fit_source(sources[0], new, progress("fit"))
        fitted.model.save_pretrained(beside / "model")
        write_text(beside / _MARK, mark)
    model = fitted.model.to(pick_device("auto"))
    with closing(open_store(beside, model.n_bits, model.fingerprint(), facts.projected, facts.stem)) as store:
        counts = [index_source(store, model, sources[0], progress, ready=fitted.ready)]
        counts += [index_source(store, model, source, progress) for source in sources[1:]]
        store.delete(sorted(set(store.ids()).difference(item.id for item in items)))
    if problems := [line for done in counts for line in done.problems]:
        shutil.rmtree(beside)
        raise InputError(
            f"{folder}: is left as it is: {problems[0]} ({len(problems)} such items); delete or restore them"
        )
    for file in folder.glob("*.json"):  # what else is known of the store, such as where its photographs are
        if not (beside / file.name).exists():
            shutil.copy2(file, beside)
    return version, len(items)


def _sources(folder: Path, items: list[Listed]) -> list[Source]:
    """Return the items of a store as they can be encoded again: those with an image, then those with a text alone."""
    images = [item for item in items if item.metadata.get("image")]
    texts = [item for item in items if not item.metadata.get("image")]
    if lost := [item for item in images if not os.path.exists(str(item.metadata["image"]))]:
        raise InputError(
            f"{folder}: {lost[0].metadata['image']} is not there ({len(lost)} such items); restore the images, or "
            "delete their items with `channelhash index delete`"
        )
    if unknown := [item.id for item in texts if not item.metadata.get("text")]:
        raise InputError(f"{folder}: of {unknown[0]!r} neither image nor text is known ({len(unknown)} such items)")
    if not items:
        raise InputError(f"{folder}: holds no items to fit codes to; add some with `channelhash index add`")
    sources = []
    if images:
        paths = tuple(Path(str(item.metadata["image"])) for item in images)
        captions = [tuple(str(item.metadata.get("text") or "").split("\n")) for item in images]
        given = [several if several != ("",) else () for several in captions]
        sources.append(_source(images, {"image": paths}, given if any(given) else None))
    if texts:
        sources.append(_source(texts, {"text": tuple(str(item.metadata["text"]) for item in texts)}, None))
    return sources


def _source(items: list[Listed], values: dict[str, Items], captions: list[tuple[str, ...]] | None) -> Source:
    ids = tuple(item.id for item in items)
    metadata = [{key: value for key, value in item.metadata.items() if key != STATE} for item in items]
    return Source(Records(ids, values, np.zeros((len(ids), 0), dtype=bool), ()), metadata, captions=captions)


def _take_its_place(folder: Path, beside: Path, version: int) -> None:
    """Exchange the two folders in one step, if nobody has the old store open or wrote to it."""
    again = "then the same command goes on"
    with locked(StoreFolder(folder).gate):  # nobody opens it meanwhile
        try:
            with closing(connect(StoreFolder(folder).database, alone=True)):
                pass
        except sqlite3.OperationalError:
            raise InputError(f"{folder}: is open in another process; stop that (serve?), {again}") from None
        if _version(folder) != version:
            raise InputError(f"{folder}: was written to meanwhile; let that end, {again}")
        if POSIX:
            _exchange(folder, beside)
    if not POSIX:
        _exchange_closed(folder, beside, version, again)


def _version(folder: Path) -> int:
    with closing(connect(StoreFolder(folder).database)) as connection:
        return read_state(connection).version


def _exchange(first: Path, second: Path) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    names = [os.fsencode(path) for path in (first, second)]
    if hasattr(library, "renameat2"):
        if library.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0:
            return
        if (number := ctypes.get_errno()) not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise OSError(number, os.strerror(number), str(first))
    aside = first.with_name(f"{first.name}.before")  # a system that cannot: two steps, and a store at any time
    os.rename(first, aside)
    os.rename(second, first)
    shutil.rmtree(aside)


def _exchange_closed(folder: Path, beside: Path, version: int, again: str) -> None:
    """Exchange two folders on Windows, which renames none in which anybody, this process too, has a file open."""
    aside = folder.with_name(f"{folder.name}.before")
    try:
        os.rename(folder, aside)
    except PermissionError:
        raise InputError(f"{folder}: is open in another process; stop that (serve?), {again}") from None
    if _version(aside) != version:  # somebody opened it after the lock was released
        os.rename(aside, folder)
        raise InputError(f"{folder}: was written to meanwhile; let that end, {again}")
    os.rename(beside, folder)
    shutil.rmtree(aside)
