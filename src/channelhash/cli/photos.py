"""A plain folder of photographs in the place of a store: it is indexed first, and then only what changed."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from channelhash.cli.output import progress_bars, say, say_left_out, working
from channelhash.errors import InputError
from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    from channelhash.models import HashModel
    from channelhash.photos.changes import Indexed
    from channelhash.photos.stores import Index
    from channelhash.search.store import Store

# Lines about what cannot be read that a search begins with; JSON has all.
_MOST = 20


def open_searched(
    store: str,
    model: Path | None = None,
    encoder: Sequence[str] = (),
    captions: Path | None = None,
    exclude: Sequence[str] = (),
    words_alone: bool = False,
) -> tuple["Store", "HashModel | Path | None", Sequence[str]]:
    """Return a store that has items, the model that encodes queries if it is known, and what cannot be read.

    The store of a plain folder is brought up to date first.

    For words alone, which need no model, the store of a folder is searched as it is.

    Other arguments and errors as in `bring_up_to_date`; or there is nothing to search.
    """
    from channelhash.search.photo_folders import find_store
    from channelhash.search.query import open_filled_store

    if words_alone and not encoder and captions is None and not exclude and find_store(Path(store)):
        return open_filled_store(store), model, ()
    done, photos = bring_up_to_date(store, model, encoder, captions, exclude)
    problems = done.problems if done else ()
    if photos and len(photos.store):
        return photos.store, photos.encoder, problems
    return open_filled_store(store), model, problems


def bring_up_to_date(
    store: str, model: Path | None, encoder: Sequence[str], captions: Path | None, exclude: Sequence[str]
) -> tuple["Indexed | None", "Index | None"]:
    """Make a store of a plain folder of photographs, or bring its store up to date.

    Returns:
        What became of the folder's items, None for other addresses and where the store can only be read; and the store,
        None likewise and for a folder whose store lacks nothing, to be opened by its address.

    Raises:
        InputError: an encoder, captions or exclusions are given for anything but a plain folder; or as
            `photos.stores.index`.
    """
    from channelhash.search.photo_folders import find_store, holds_files
    from channelhash.search.sqlite.folder import StoreFolder

    if not holds_files(store):
        for option, value in {"--encoder": encoder, "--captions": captions, "--exclude": exclude}.items():
            if value:
                raise InputError(f"{option}: goes with a plain folder of pictures, {store} is none; leave it out")
        return None, None
    place = find_store(Path(store))
    if place is not None and not StoreFolder(place).writable:
        say(f"{place}: can only be read, so that new pictures are not found")
        return None, None
    asks_for_more = model is not None or encoder or captions is not None or exclude
    if unchanged := None if asks_for_more else _as_it_is(Path(store)):
        say_left_out(unchanged.problems, _MOST)
        return unchanged, None
    from channelhash.models.description import extra_of, read_words

    word = read_words(list(encoder)) if encoder else None
    with naming_extra("train" if model else extra_of(word)):
        from channelhash.photos.stores import index, keep_exported
        from channelhash.search.photo_folders import find_or_keep

    with working(f"{store} keeps the items indexed so far") as progress:
        photos = index(
            store, model=model, encoder=word, captions=captions, exclude=exclude, prune=True, progress=progress
        )
    _report(photos.indexed, photos.store)
    keep_exported(find_or_keep(Path(store)), photos.encoder)
    return photos.indexed, photos


def _as_it_is(folder: Path) -> "Indexed | None":
    """Return what the store of a plain folder has if it lacks nothing and encodes questions without PyTorch."""
    from channelhash.models.exported import FOLDER, is_exported
    from channelhash.photos.changes import find_unchanged
    from channelhash.search import open_store
    from channelhash.search.photo_folders import find_store

    if (place := find_store(folder)) is None:
        return None
    with closing(open_store(place)) as opened:
        exported = is_exported(place / FOLDER, "text", opened.model)
    with progress_bars() as progress:
        return find_unchanged(folder, progress) if exported else None


def _report(done: "Indexed", store: "Store") -> None:
    """Say what cannot be read, and what changed."""
    say_left_out(done.problems, _MOST)
    counts = {"added": done.added, "changed": done.replaced, "moved": done.moved, "removed": done.pruned}
    if not any(counts.values()):
        return
    say_left_out([f"{count:,} × {reason}" for reason, count in done.skipped.items()])
    changed = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    say(f"{changed}: {done.items:,} pictures in {store.address} ({done.seconds:.0f} s)")
