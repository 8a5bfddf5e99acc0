"""A plain folder of photographs in the place of a store: it is indexed first, and then only what changed."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channelhash.cli.output import messages, progress_bars
from channelhash.cli.stopping import when_stopped
from channelhash.errors import InputError
from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    from channelhash.indexing.indexed import Indexed
    from channelhash.indexing.stores import Index
    from channelhash.models import HashModel
    from channelhash.search.store import Store

Encoder = Annotated[
    list[str], typer.Option(help="Of a plain folder of pictures, the first time: as for `channelhash index create`.")
]
Captions = Annotated[
    Path | None, typer.Option(help="Of a plain folder of pictures: a file of their captions. It is remembered.")
]


def open_searched(
    store: str,
    model: Path | None = None,
    encoder: Sequence[str] = (),
    captions: Path | None = None,
    words_alone: bool = False,
) -> tuple["Store", "HashModel | Path | None"]:
    """Open a store that has items, and return the model that encodes queries, as far as it is known.

    For words alone, which need no model, the store of a folder is searched as it is.

    Other arguments and errors as in `bring_up_to_date`; or there is nothing to search.
    """
    from channelhash.search.photo_folders import find_store
    from channelhash.search.query import open_filled_store

    if words_alone and not encoder and captions is None and find_store(Path(store)):
        return open_filled_store(store), model
    photos = bring_up_to_date(store, model, encoder, captions)
    return (photos.store, photos.encoder) if photos else (open_filled_store(store), model)


def bring_up_to_date(store: str, model: Path | None, encoder: Sequence[str], captions: Path | None) -> "Index | None":
    """Make a store of a plain folder of photographs, or bring its store up to date.

    Returns:
        The store; None for other addresses, and of a folder whose store lacks nothing or can only be read, to be opened
        by its address.

    Raises:
        InputError: an encoder or captions are given for anything but a plain folder; or as `indexing.stores.index`.
    """
    from channelhash.search.local.folder import StoreFolder
    from channelhash.search.photo_folders import find_store, holds_files

    if not holds_files(store):
        if encoder or captions is not None:
            given = "--encoder" if encoder else "--captions"
            raise InputError(f"{given}: goes with a plain folder of pictures, {store} is none; leave it out")
        return None
    place = find_store(Path(store))
    if place is not None and not StoreFolder(place).writable:
        typer.echo(f"{place}: can only be read, so that new pictures are not found", err=True)
        return None
    if model is None and not encoder and captions is None and _answers_as_it_is(Path(store)):
        return None
    from channelhash.models.encoder_words import extra_of, read_words

    word = read_words(list(encoder)) if encoder else None
    with naming_extra("train" if model else extra_of(word)):
        from channelhash.indexing.questions import keep_exported
        from channelhash.indexing.stores import index
        from channelhash.search.photo_folders import find_or_keep

    when_stopped(f"{store} keeps the items indexed so far")
    with progress_bars() as progress:
        photos = index(store, model=model, encoder=word, captions=captions, prune=True, progress=progress)
    _report(photos.indexed, photos.store)
    keep_exported(find_or_keep(Path(store)), photos.encoder)
    return photos


def _answers_as_it_is(folder: Path) -> bool:
    """Return whether the store of a plain folder lacks nothing and encodes questions without PyTorch."""
    from channelhash.indexing.unchanged import is_unchanged
    from channelhash.models.exported import FOLDER, is_exported
    from channelhash.search import open_store
    from channelhash.search.photo_folders import find_store

    place = find_store(folder)
    if place is None:
        return False
    with closing(open_store(place)) as opened:
        exported = is_exported(place / FOLDER, "text", opened.model)
    with progress_bars() as progress:
        return exported and is_unchanged(folder, progress)


def _report(done: "Indexed", store: "Store") -> None:
    """Say what changed; nothing if nothing did."""
    counts = {"added": done.added, "changed": done.replaced, "moved": done.moved, "removed": done.pruned}
    if not any(counts.values()):
        return
    for line in (*done.problems, *(f"{count:,} × {reason}" for reason, count in done.skipped.items())):
        messages.print(f"left out: {line}", markup=False, soft_wrap=True)
    changed = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    messages.print(
        f"{changed}: {done.items:,} pictures in {store.address} ({done.seconds:.0f} s)", markup=False, soft_wrap=True
    )
