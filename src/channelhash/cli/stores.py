"""Open the store that a command searches.

A plain folder of photographs may take the place of a store: it is indexed first, and later only
what changed in it.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

import channelhash as ch
from channelhash.cli import shared
from channelhash.errors import InputError
from channelhash.models.description import extra_of, read_words
from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    from channelhash.indexing.encode import Indexed
    from channelhash.indexing.index import Index

StoreModel = Annotated[
    Path | None, typer.Option(help="Run or saved model that made the codes, if the store has none.")
]
#: Most lines about unreadable files that a search prints first; JSON has all.
_MOST = 20


class IndexOptions(NamedTuple):
    """How a plain folder is indexed: by which model or encoder, with which captions and
    exclusions.
    """

    model: Path | None = None
    encoder: Sequence[str] = ()
    captions: Path | None = None
    exclude: Sequence[str] = ()


def open_searched(
    store: str, options: IndexOptions, words_alone: bool = False
) -> tuple["ch.Store", Sequence[str]]:
    """Return a store that has items, and a line for each file that cannot be read.

    The store of a plain folder is brought up to date first, except for words alone, which need no
    model.

    Raises:
        InputError: there is nothing to search; or as `bring_up_to_date`.
    """
    address = ch.search.Address.parse(store)
    is_indexed_anew = bool(options.encoder or options.captions or options.exclude)
    if words_alone and not is_indexed_anew and address.store.kind == "store":
        return ch.search.open_filled_store(address), ()
    index = bring_up_to_date(address, options)
    if index is not None and len(index.store):
        return index.store, index.indexed.problems
    return ch.search.open_filled_store(address), ()


def bring_up_to_date(
    address: "ch.search.Address", options: IndexOptions, waits: bool = True
) -> "Index | None":
    """Index a plain folder of photographs, or what changed in it; return None for other addresses
    and where the store can only be read. Unless it ``waits``, photographs to which no codes have to
    be fitted are left to `channelhash.indexing.stores.add_to_store`.

    Raises:
        InputError: an encoder, captions or exclusions are given for anything but a plain folder; or
            as `channelhash.indexing.index.index`.
    """
    if not address.holds_files:
        _check_unused(address, options)
        return None
    if not _can_be_written(address, options):
        return None
    word = read_words(list(options.encoder)) if options.encoder else None
    with naming_extra("train" if options.model else extra_of(word)):
        from channelhash.indexing.index import begin_index, index

    settings = options._asdict() | {"encoder": word}
    run = index if waits else begin_index
    with shared.progress_bars(f"{address} keeps the items indexed so far") as progress:
        found = run(address.text, **settings, prune=True, progress=progress)
    known = found.indexed.known
    shared.say_left_out([line for line in found.indexed.problems if line not in known], _MOST)
    say_known(address, len(known))
    changes = found.indexed.changes(found.store.address)
    if changes:
        shared.say_left_out(skipped_lines(found.indexed))
        shared.say(changes)
    for remark in found.indexed.remarks:
        shared.say(remark)
    return found


def say_known(address: "ch.search.Address", n_images: int) -> None:
    """Say how many images can still not be read, after these were listed once."""
    if n_images:
        shared.say(
            f"left out: {n_images:,} × unreadable picture, as before; `channelhash index add "
            f"{shlex.quote(address.text)}` lists them"
        )


def skipped_lines(indexed: "Indexed") -> list[str]:
    """Return a line for each reason for which files of a folder are no photographs."""
    return [f"{count:,} × {reason}" for reason, count in indexed.skipped.items()]


def _check_unused(address: "ch.search.Address", options: IndexOptions) -> None:
    """Raise `InputError` if options are given that only a plain folder takes."""
    for name, value in options._asdict().items():
        if value and name != "model":
            raise InputError(
                f"--{name}: goes with a plain folder of pictures, {address} is none; leave it out"
            )


def _can_be_written(address: "ch.search.Address", options: IndexOptions) -> bool:
    """Return whether a folder's store can be written; say so if it cannot."""
    place = address.store
    if place.kind != "store" or place.writable:
        return True
    if options.exclude:
        raise InputError(
            f"--exclude: {place} can only be read, so that nothing can be left out of it; make "
            "a store of your own with `channelhash index create`"
        )
    shared.say(f"{place}: can only be read, so that new pictures are not found")
    return False
