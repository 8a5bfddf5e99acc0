"""Create stores with their models, and bring them up to date with their collections.

Files of codes, as `CodeSet.save` writes them, go into stores as well, without a model.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.codes import CodeSet
from channelhash.data.vectors import content_of
from channelhash.errors import InputError, argument
from channelhash.indexing.changes import reading_state
from channelhash.indexing.encode import EncodedBatch, Indexed, index_source
from channelhash.indexing.fit import NewCodes, compare_with_texts, fit_source
from channelhash.indexing.ocr import open_reader
from channelhash.indexing.source import PhotoSource, Source
from channelhash.indexing.vectors import read_vectors
from channelhash.models import load_model
from channelhash.models.description import EncoderWord, Model, fit_facts, in_one_word
from channelhash.models.encoders import absolute_word, is_encoder
from channelhash.search import (
    Address,
    Item,
    Store,
    open_store,
)
from channelhash.search.checks import check_ids
from channelhash.search.items import Facts, NoStoreError
from channelhash.search.match import described_fit
from channelhash.search.query import load_encoder
from channelhash.search.sqlite.database import metadata_of
from channelhash.utils.progress import Progress, StageProgress, no_progress, no_stage_progress
from channelhash.utils.seeds import generator

#: Items of a file of codes compared and written at once.
_BATCH = 10_000
#: The most captions of the images that join a bank; more change little, and each takes 15 ms.
_CAPTIONS = 500


def only_run(address: Address, progress: StageProgress) -> AbstractContextManager[None]:
    """Lock a store in a folder against other indexing; other stores are not locked."""
    folder = address.store.folder
    return nullcontext() if folder is None else folder.hold_run(progress)


def read_again(
    address: Address,
    source: Path | None,
    root: Path | None = None,
    exclude: Sequence[str] = (),
    captions: Path | None = None,
    ocr: bool | None = None,
    array: str | None = None,
    ids: Path | None = None,
) -> Source:
    """Read the items for a store. For a folder that it was made of before, exclusions, captions and
    an ``ocr`` of False are remembered. ``array`` and ``ids`` are those of `load_vectors`.
    """
    if source is not None and (array or ids or content_of(source) == "vectors"):
        _check_unused(source, {"root": root, "exclude": exclude, "captions": captions, "ocr": ocr})
        return read_vectors(source, array, ids)
    if ocr:
        open_reader()
    known = _known_photos(address, source)
    items = Source.read(
        known.folder,
        root,
        exclude or known.exclude,
        captions or known.captions,
        _still_damaged(known),
    )
    records = items.records
    if exclude:  # remembered exclusions may have nothing left to exclude
        records = replace(records, problems=(*records.problems, *items.unmatched))
    photos = items.photos
    if photos is not None:
        photos = replace(photos, unread=known.unread, ocr=known.ocr if ocr is None else ocr)
    return replace(items, records=records, photos=photos, ocr=ocr)


def _check_unused(source: Path, options: Mapping[str, Any]) -> None:
    """Refuse options that vectors do not take."""
    for name, value in options.items():
        if value:
            raise InputError(
                f"{argument(name)}: goes with images and texts, {source} holds vectors; leave it "
                "out"
            )


def _known_photos(address: Address, source: Path | None) -> PhotoSource:
    """Return how the folder of a store was read the last time, or defaults for another source."""
    place = address.store.path
    known = None if place is None else PhotoSource.read(place)
    if source is None:
        if known is None:
            raise InputError(
                f"{address}: was not made of a folder of pictures; name the SOURCE of its items"
            )
        return known
    is_same = known is not None and source.resolve() == known.folder.resolve()
    return known if known and is_same else PhotoSource(source)


def _still_damaged(photos: PhotoSource) -> set[str]:
    """Return the ids of the images that could not be read the last time, and have not changed."""
    damaged = set()
    for name, unread in photos.unread.items():
        with suppress(OSError):  # a missing image has no raw original
            if reading_state(photos.folder / name) == unread.state:
                damaged.add(name)
    return damaged


def holds_items(address: Address) -> bool:
    """Return whether there is a store at an address, which has items unless it is a folder."""
    if address.path is not None:
        return address.kind == "store"
    try:
        with open_store(address) as store:
            return len(store) > 0
    except NoStoreError:
        return False


def _check_encoder(store: Store, word: EncoderWord) -> None:
    """Refuse an encoder other than the one that a store's codes were fitted to."""
    present = fit_facts(described_fit(store)).get("encoder", "a run")
    given = in_one_word(absolute_word(word))
    if present != given:
        raise InputError(
            f"{store.address}: holds codes of {present}, not of {given}; leave the encoder out, or "
            "make another store"
        )


def create_store(
    address: Address,
    codes: NewCodes | Model,
    source: Source | None = None,
    progress: StageProgress = no_stage_progress,
    projections: bool | None = None,
) -> Indexed:
    """Create a store with the items of ``source``, by a model or by codes that are fitted to them.

    A folder gets a copy of the model in ``model/``, so that it can be moved and searched without
    the run. Other stores keep only the model's fingerprint.
    """
    with only_run(address, progress):
        store, indexed = open_new_store(address, codes, source, progress, projections)
        store.close()
        return indexed


def open_new_store(
    address: Address,
    codes: NewCodes | Model,
    source: Source | None,
    progress: StageProgress,
    projections: bool | None = None,
    waits: bool = True,
) -> tuple[Store, Indexed]:
    """Do as `create_store`, and return the open store. Unless it ``waits``, only items that codes
    are fitted to are added; `add_to_store` adds the others.
    """
    began = time.perf_counter()
    is_run = isinstance(codes, NewCodes) and not codes.are_fitted
    check_free(address, keeps_model=not is_run)
    encoded = list[EncodedBatch]()
    remarks: tuple[str, ...] = ()
    if not isinstance(codes, NewCodes):
        encoder: Model = codes
    elif is_run:
        encoder = load_model(Path(str(codes.encoder)), device="auto")
    else:
        encoder, encoded, source = fit_source(_check_items(address, source), codes, progress)
        remarks = compare_with_texts(encoder, source)
    if address.path is not None:
        encoder.save_pretrained(address.path / "model")
    stage = None
    if projections or (projections is None and not is_run):
        stage = encoder.corrected_stage(_sample_captions(source))
    indexed = Indexed()
    with ExitStack() as opened:
        store = open_store(address, encoder.n_bits, encoder.fingerprint(), stage)
        opened.enter_context(store)
        store.make()
        if source is not None:
            source = source.encodable(encoder)
            _remember(store, source)
            if waits or encoded:
                indexed = _add(store, lambda: encoder, source, progress, encoded=encoded)
        opened.pop_all()
    indexed = replace(indexed, remarks=remarks)
    if encoded:  # the time of fitting counts
        seconds = time.perf_counter() - began
        indexed = replace(indexed, seconds=seconds, rate=indexed.added / seconds)
    return store, indexed


def _sample_captions(source: Source | None) -> list[str]:
    """Draw the captions of images that join the bank of a new store."""
    if source is None or source.captions is None:
        return []
    captions = [*chain.from_iterable(source.captions)]
    drawn = generator(0, "bank", len(captions)).permutation(len(captions))[:_CAPTIONS]
    return [captions[place] for place in drawn]


def _check_items(address: Address, source: Source | None) -> Source:
    """Refuse to fit codes without items."""
    if source is None:
        raise InputError(
            f"{address}: codes are fitted to items; name their SOURCE, or a run that has codes: "
            f"{argument('model')} RUN"
        )
    return source


def add_to_store(
    address: Address,
    source: Source,
    model: Path | None = None,
    progress: StageProgress = no_stage_progress,
    prune: bool = False,
) -> Indexed:
    """Encode what is new or changed in ``source`` into a store that was made with
    `create_store`.
    """
    _check_store(address)
    with only_run(address, progress):
        store, indexed = open_updated_store(address, source, model, progress, prune)
        store.close()
        return indexed


def open_updated_store(
    address: Address,
    source: Source,
    model: Path | None,
    progress: StageProgress,
    prune: bool,
    encoder: EncoderWord | None = None,
    waits: bool = True,
) -> tuple[Store, Indexed]:
    """Do as `add_to_store`, unless it does not wait for that, and return the open store. Refuse
    another ``encoder`` than its own.
    """
    with ExitStack() as opened:
        store = opened.enter_context(open_store(address))
        # A run is compared when it is loaded.
        if encoder is not None and is_encoder(encoder):
            _check_encoder(store, encoder)
        if not store.writable:
            raise InputError(
                f"{address}: can only be read; make a store with `channelhash index create`"
            )
        description = described_fit(store)
        load: Callable[[], Model] = partial(load_encoder, store, model)
        if model is None and description and source.folder is not None:
            # The networks are loaded only if an image has changed.
            source = source.with_modalities(list(description["architecture"]["widths"]))
        else:
            loaded = load()
            source = source.encodable(loaded)
            _adopt_model(store, address, loaded)
            load = lambda: loaded  # noqa: E731
        _remember(store, source)
        indexed = _add(store, load, source, progress, prune) if waits else Indexed()
        opened.pop_all()
    return store, indexed


def _adopt_model(store: Store, address: Address, model: Model) -> None:
    """Keep a model with the store if it extends the store's own; refuse other models.

    A student, which only shares the store's code space, encodes queries but adds no items.
    """
    if store.model not in model.extends:
        Facts(0, store.model).check(address.text, Facts(0, model.fingerprint()))
        return
    folder = store.model_folder
    # A model in the folder that extends this one stays.
    if folder is not None and model.fingerprint() not in load_model(folder).extends:
        model.save_pretrained(folder / "model")


def _remember(store: Store, source: Source) -> None:
    """Write how a folder is read, so that a job that ends early can go on."""
    if store.folder and source.photos:
        source.photos.write(store.folder)


def _add(
    store: Store,
    load: Callable[[], Model],
    source: Source,
    progress: StageProgress,
    prune: bool = False,
    encoded: Sequence[EncodedBatch] = (),
) -> Indexed:
    folder = store.folder
    photos = source.photos
    indexed, unread = index_source(store, load, source, progress, prune, encoded)
    with_raw = source.read_raw_of(unread.keys())
    if folder and photos and unread != photos.unread:
        replace(photos, unread=unread).write(folder)
    if with_raw is None:
        return indexed
    again = replace(with_raw, photos=replace(with_raw.photos or PhotoSource(Path()), unread=unread))
    rest, _ = index_source(store, load, again, progress, prune)
    return indexed + rest


def put_codes(
    address: Address, file: Path, is_new: bool = False, progress: Progress = no_progress
) -> Indexed:
    """Put the items of a file of codes into a store, unless it has them already. They replace items
    of the same ids.

    Texts, images and labels become metadata. A new store keeps the fingerprint of the codes' model,
    but no model.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "codes.parquet")
    ...     codes = {"image": np.array([[0], [7]], np.uint8)}
    ...     CodeSet(["a", "b"], codes, None, n_bits=8).save(file)
    ...     put_codes(Address.parse(f"{folder}/a.store"), file, is_new=True).added
    2
    """
    codes = CodeSet.load(file)
    if is_new:
        check_free(address)
    else:
        _check_store(address, str(file))
    with open_store(address, codes.n_bits, codes.model) as store:
        if is_new:
            store.make()
        elif store.model and not codes.model:
            raise InputError(
                f"{file}: does not say which model made its codes, and {address} holds those of one"
            )
        began = time.perf_counter()
        check_ids(codes.ids, f"{file}: ids")
        known = set(store.ids())
        written = 0
        for start in range(0, len(codes), _BATCH):
            part = codes.take(range(start, min(start + _BATCH, len(codes))))
            written += _put_changed(store, part, known)
            progress(start + len(part), len(codes))
        added = sum(name not in known for name in codes.ids)
        seconds = time.perf_counter() - began
        return Indexed(
            added=added,
            replaced=written - added,
            unchanged=len(codes) - written,
            items=len(store),
            seconds=seconds,
            rate=written / seconds,
        )


def _put_changed(store: Store, codes: CodeSet, known: Set[str]) -> int:
    """Put the items that are new or differ from the stored ones, and return their number."""
    metadata = metadata_of(codes)
    items = store.get([name for name in codes.ids if name in known])
    stored = {item.id: item for item in items}
    rows = [
        row
        for row, name in enumerate(codes.ids)
        if not _is_stored(stored.get(name), codes, row, metadata[row])
    ]
    if rows:
        changed = codes.take(rows)
        store.upsert(changed.ids, changed.codes, metadata=[metadata[row] for row in rows])
    return len(rows)


def check_free(address: Address, keeps_model: bool = False) -> None:
    """Refuse to create a store where there is one, in a folder with other content, or where no
    model can be kept.
    """
    if keeps_model and address.path is None:
        raise InputError(
            f"{address}: keeps no model; make a store in a folder, then `channelhash index push` it"
        )
    if holds_items(address):
        raise InputError(
            f"{address}: already a store; add to it with `channelhash index add {address} SOURCE`"
        )
    if address.folder is not None:
        address.folder.check_content()


def _check_store(address: Address, source: str = "SOURCE") -> None:
    """Refuse to add to a folder that is not a store."""
    if address.path is not None and address.store.kind != "store":
        raise InputError(
            f"{address}: no store; make one with `channelhash index create {address} {source}`"
        )


def _is_stored(item: Item | None, codes: CodeSet, row: int, metadata: Mapping[str, Any]) -> bool:
    """Return whether a store's item has the codes and metadata of a row."""
    if item is None or any(item.metadata.get(key) != value for key, value in metadata.items()):
        return False
    return all(
        name in item.codes and np.array_equal(item.codes[name], rows[row])
        for name, rows in codes.codes.items()
    )
