"""Make stores with their models, and bring them up to date with their collections.

Files of codes, as `CodeSet.save` writes them, go into stores too. They need no model, since nothing
is encoded.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from channelhash.codes import CodeSet
from channelhash.duplicates import DuplicateGroup, find_duplicates
from channelhash.errors import InputError, argument
from channelhash.indexing.changes import reading_state
from channelhash.indexing.encode import EncodedBatch, Indexed, index_source
from channelhash.indexing.fit import NewCodes, fit_source
from channelhash.indexing.ocr import open_reader
from channelhash.indexing.source import PhotoSource, Source
from channelhash.models import fitted, load_model
from channelhash.models.description import EncoderWord, Model, fit_facts, in_one_word
from channelhash.models.encoders import absolute_word, is_encoder
from channelhash.search import (
    Address,
    Item,
    Store,
    open_store,
)
from channelhash.search.address import choose_place, find_store
from channelhash.search.checks import check_ids
from channelhash.search.hits import Hits, SearchOptions
from channelhash.search.items import Facts, NoStoreError
from channelhash.search.match import described_fit
from channelhash.search.query import load_encoder, search_store
from channelhash.search.sqlite.database import metadata_of
from channelhash.utils.progress import Progress, StageProgress, no_progress, no_stage_progress
from channelhash.utils.typed_settings import trusting

#: Items of a file of codes that are compared and written at once.
_BATCH = 10_000


@dataclass(frozen=True)
class Index:
    """A collection that can be searched: its store, and the model that encodes queries.

    Attributes:
        store: the codes and what is known of the items.
        indexed: what became of the items when the store was last brought up to date.
        load: opens the model.
    """

    store: Store
    indexed: Indexed
    load: Callable[[], Model]

    @cached_property
    def encoder(self) -> Model:
        """The model that encodes queries, opened when it is first needed."""
        return self.load()

    def search(
        self,
        text: str | None = None,
        *,
        image: str | Path | Image.Image | None = None,
        like: str | None = None,
        minus: Sequence[str | Path | Image.Image] = (),
        minus_like: Sequence[str] = (),
        k: int = 10,
        radius: int | None = None,
        limit: int | None = None,
        by: Literal["all", "image", "text", "words"] | None = None,
        modality: str | None = None,
        where: str | None = None,
        rerank: int | None = None,
        collapse: int | bool | None = None,
        offset: int = 0,
        leave_out: str | None = None,
        fitting: bool = False,
    ) -> Hits:
        """Search with words, an image, an item of the store, or several of them together.

        Args:
            text: words. Dates and places among them narrow the search, ``-word`` steers away.
            image: an image file or an opened image.
            like: id of an item of the store.
            minus: words or images that are not wanted.
            minus_like: ids of items that are not wanted.
            k: number of answers, 1 or more. This and what follows is as in
                `channelhash.search.SearchOptions`.

        Returns:
            The hits, best first. The first ones are the same for every ``k``.

        Raises:
            InputError: nothing is asked for, an option is out of its range or contradicts another,
                the filter is wrong, an id is unknown, or an image cannot be read.

        Example::

            index = ch.index("photos", model="model")
            [(hit.id, hit.distance) for hit in index.search("a dog on a beach", k=5)]
        """
        options = SearchOptions(
            k, radius, limit, modality, where, rerank, collapse, by, offset, leave_out, fitting
        )
        return search_store(
            self.store,
            options,
            text=text,
            image=Path(image) if isinstance(image, str) else image,
            like=like,
            minus=minus,
            minus_like=minus_like,
            model=self.encoder,
        )

    def duplicates(
        self,
        radius: int | None = None,
        modality: str | None = None,
        where: str | None = None,
        compare_images: bool = True,
    ) -> list[DuplicateGroup]:
        """Return the groups of near-duplicates; arguments and errors as in `find_duplicates`."""
        return find_duplicates(self.store, radius, modality, where, compare_images)


def index(
    source: str | Path,
    store: str | Path | None = None,
    *,
    model: str | PathLike[str] | None = None,
    encoder: EncoderWord | None = None,
    codes: fitted.Codes = "auto",
    n_bits: int = fitted.N_BITS,
    root: str | Path | None = None,
    exclude: Sequence[str] = (),
    captions: str | Path | None = None,
    ocr: bool | None = None,
    prune: bool = False,
    trust_code: bool = False,
    progress: StageProgress = no_stage_progress,
) -> Index:
    """Make a store of a collection, or bring it up to date, and open it for searching.

    Args:
        source: a folder of images, a table, a file of features or a configuration.
        store: the address of the store. By default that of a folder of images is ``.channelhash``
            in it, or in the user's cache if the folder cannot be written; that of ``items.csv`` is
            ``items.store`` beside it.
        model: a run, its folder or a saved model. A store that keeps its model needs it only when
            it is made.
        encoder: instead of ``model``, for a new store: ``"photo"`` or another encoder, see
            `channelhash.models.open_encoder`. With neither, features are taken as they are, and
            images and texts go through ``photo``.
        codes: with an encoder, how items get codes: ``auto``, ``learned``, ``sign``, ``itq`` or
            ``cca-itq``.
        n_bits: with an encoder, the code length k, 1 or more.
        root: for a table, the folder of its images.
        exclude: for a folder, patterns of paths to leave out, as in a ``.gitignore``, or paths in
            it; if empty, those of the last time. Items that they leave out are removed.
        captions: for a folder, a file with captions of its images; if None, that of the last time.
        ocr: whether to read the text in images, also in those stored without it. None reads it in
            new images of a folder if the extra ``ocr`` is installed and False was never given.
        prune: for a folder, remove the items whose image is no longer in it.
        trust_code: consent to run code of this machine that the model or the store names
            (``python:module:NAME``).
        progress: stage -> its callback, which gets the numbers done and in all.

    Raises:
        InputError: the source cannot be read or has no items, the store has another encoder, the
            model cannot encode the items, or it names code and ``trust_code`` is false.

    Example::

        index = ch.index("photos", model="model")
        index.indexed.added, len(index.store)
    """
    path = Path(source).resolve()
    address = Address.parse(default_address(path) if store is None else store)
    saved = _optional_path(model)
    with trusting(trust_code):
        items = read_again(
            address, path, _optional_path(root), exclude, _optional_path(captions), ocr
        )
        with _only_run(address, progress):
            if _holds_items(address):
                opened, indexed = _add_to_store(address, items, saved, progress, prune, encoder)
            else:
                new = NewCodes(str(saved) if saved else encoder, codes, n_bits)
                opened, indexed = _create_store(address, new, items, progress)
        return Index(opened, indexed, partial(load_encoder, opened, saved, trust_code))


def _optional_path(path: str | PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path)


def _only_run(address: Address, progress: StageProgress) -> AbstractContextManager[None]:
    """Return a block in which nobody else indexes into a store that is a folder; other stores are
    not locked.
    """
    folder = address.store.folder
    return nullcontext() if folder is None else folder.hold_run(progress)


def read_again(
    address: Address,
    source: Path | None,
    root: Path | None = None,
    exclude: Sequence[str] = (),
    captions: Path | None = None,
    ocr: bool | None = None,
) -> Source:
    """Read the items for a store. If it was made of this folder before, exclusions, captions and a
    refused ``ocr`` stay the same.
    """
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


def _known_photos(address: Address, source: Path | None) -> PhotoSource:
    """Return how the folder of a store was read the last time; for another source, nothing is
    known.
    """
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
        with suppress(OSError):  # an image that is gone lies beside no raw original
            if reading_state(photos.folder / name) == unread.state:
                damaged.add(name)
    return damaged


def default_address(source: Path) -> str:
    """Return the address of a source's store where none is named."""
    return str(
        find_store(source) or choose_place(source)
        if source.is_dir()
        else source.with_suffix(".store")
    )


def _holds_items(address: Address) -> bool:
    """Return whether there is a store at an address."""
    if address.path is not None:
        return address.kind == "store"
    try:
        with open_store(address) as store:
            return len(store) > 0
    except NoStoreError:
        return False


def _check_encoder(store: Store, word: EncoderWord) -> None:
    """Refuse an encoder to whose features the codes of a store were not fitted."""
    present = fit_facts(described_fit(store)).get("encoder", "a run")
    given = in_one_word(absolute_word(word))
    if present != given:
        raise InputError(
            f"{store.address}: holds codes of {present}, not of {given}; leave the encoder out, or "
            "make another store"
        )


def create_store(
    address: Address,
    codes: NewCodes,
    source: Source | None = None,
    progress: StageProgress = no_stage_progress,
    projections: bool | None = None,
) -> Indexed:
    """Make a new store with the items of ``source``.

    A folder gets a copy of the model in ``model/``, so that it can be moved and searched without
    the run. Other stores keep only the model's fingerprint.
    """
    with _only_run(address, progress):
        store, indexed = _create_store(address, codes, source, progress, projections)
        store.close()
        return indexed


def _create_store(
    address: Address,
    codes: NewCodes,
    source: Source | None,
    progress: StageProgress,
    projections: bool | None = None,
) -> tuple[Store, Indexed]:
    began = time.perf_counter()
    is_fitted = codes.encoder is None or is_encoder(codes.encoder)
    if is_fitted and address.path is None:
        raise InputError(
            f"{address}: keeps no model; make a store in a folder, then `channelhash index push` it"
        )
    _check_free(address)
    encoded = list[EncodedBatch]()
    if not is_fitted:
        encoder: Model = load_model(Path(str(codes.encoder)), device="auto")
    elif source is None:
        raise InputError(
            f"{address}: codes are fitted to items; name their SOURCE, or a run that has codes: "
            f"{argument('model')} RUN"
        )
    else:
        encoder, encoded, source = fit_source(source, codes, progress("fit"))
    if address.path is not None:
        encoder.save_pretrained(address.path / "model")
    projected = is_fitted if projections is None else projections
    indexed = Indexed()
    with ExitStack() as opened:
        store = open_store(address, encoder.n_bits, encoder.fingerprint(), projected)
        opened.enter_context(store)
        store.make()
        if source is not None:
            source = source.encodable(encoder)
            indexed = _add(store, lambda: encoder, source, progress, encoded=encoded)
        opened.pop_all()
    if encoded:  # the time of fitting counts
        seconds = time.perf_counter() - began
        indexed = replace(indexed, seconds=seconds, rate=indexed.added / seconds)
    return store, indexed


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
    with _only_run(address, progress):
        store, indexed = _add_to_store(address, source, model, progress, prune)
        store.close()
        return indexed


def _add_to_store(
    address: Address,
    source: Source,
    model: Path | None,
    progress: StageProgress,
    prune: bool,
    encoder: EncoderWord | None = None,
) -> tuple[Store, Indexed]:
    with ExitStack() as opened:
        store = opened.enter_context(open_store(address))
        # a run is compared when it is loaded
        if encoder is not None and is_encoder(encoder):
            _check_encoder(store, encoder)
        if not store.writable:
            raise InputError(
                f"{address}: can only be read; make a store with `channelhash index create`"
            )
        description = described_fit(store)
        load: Callable[[], Model] = partial(load_encoder, store, model)
        if model is None and description and source.folder is not None:
            # its networks are loaded only if an image has changed
            source = source.with_modalities(list(description["architecture"]["widths"]))
        else:
            loaded = load()
            source = source.encodable(loaded)
            _adopt_model(store, address, loaded)
            load = lambda: loaded  # noqa: E731
        indexed = _add(store, load, source, progress, prune)
        opened.pop_all()
    return store, indexed


def _adopt_model(store: Store, address: Address, model: Model) -> None:
    """Keep a model with the store if it extends the store's own; refuse other models.

    A model that only shares the store's code space, a student, makes queries but adds no items.
    """
    if store.model not in model.extends:
        Facts(0, store.model).check(address.text, Facts(0, model.fingerprint()))
        return
    folder = store.model_folder
    # the model in the folder stays if it extends this one in turn
    if folder is not None and model.fingerprint() not in load_model(folder).extends:
        model.save_pretrained(folder / "model")


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
    if folder and photos:  # a job that is killed goes on with it
        photos.write(folder)
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
    """Put the items of a file of codes into a store. They replace items of the same ids, unless
    nothing has changed.

    Texts, images and labels become metadata. A store that is made here keeps the fingerprint of the
    model that made the codes, but no model.

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
        _check_free(address)
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
    """Put the items that the store does not have like this, and return how many these are."""
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


def _check_free(address: Address) -> None:
    """Refuse to make a store where one is, or in a folder that holds something else."""
    if _holds_items(address):
        raise InputError(
            f"{address}: already a store; add to it with `channelhash index add {address} SOURCE`"
        )
    if address.folder is not None:
        address.folder.check_content()


def _check_store(address: Address, source: str = "SOURCE") -> None:
    """Refuse to add to a folder that is no store."""
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
