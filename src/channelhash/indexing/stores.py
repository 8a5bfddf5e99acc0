"""Stores with their model: make one, fit its codes, and bring it up to date with a collection.

Files of codes, as `CodeSet.save` writes them, go into stores, too: nothing is encoded, so no model
is needed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import CodeSet
from channelhash.duplicates.groups import DuplicateGroup, find_duplicates
from channelhash.errors import InputError
from channelhash.indexing.changes import reading_state
from channelhash.indexing.encode import EncodedBatch, Indexed, encode_batches, index_source
from channelhash.indexing.ocr import open_reader
from channelhash.indexing.source import PhotoSource, Source
from channelhash.models import fitted, load_model
from channelhash.models.description import FEATURES, Model, Word, fit_facts, in_one_word
from channelhash.models.encoders import Encoder, absolute_word, is_encoder, open_encoder
from channelhash.search import (
    STORES,
    Item,
    Store,
    choose_place,
    find_or_keep,
    find_store,
    kind_of,
    open_store,
)
from channelhash.search.checks import check_ids
from channelhash.search.hits import Hit, SearchOptions
from channelhash.search.items import Facts, NoStoreError
from channelhash.search.match import described_fit
from channelhash.search.query import load_encoder, search_store
from channelhash.search.sqlite.database import metadata_of
from channelhash.search.sqlite.folder import StoreFolder
from channelhash.utils.progress import Progress, StageProgress, no_progress, no_stage_progress
from channelhash.utils.seeds import generator
from channelhash.utils.typed_settings import trusting

#: Codes are fitted to so many items at most, drawn by the seed.
_SAMPLE = 20_000
_BATCH = 10_000  # items of a file of codes that are compared and written at once


@dataclass(frozen=True)
class NewCodes:
    """What codes a new store is to have.

    Attributes:
        encoder: names an encoder (`models.encoders`), or a run or saved model, which has codes of
            its own; None is ``features`` for items that are features, else ``photo``.
        codes: how codes are fitted, see `models.fitted.fit_codes`.
        n_bits: code length.
        seed: of the sample and of random rotations.

    >>> NewCodes("photo").n_bits
    256
    """

    encoder: Word | None = None
    codes: fitted.Codes = "auto"
    n_bits: int = fitted.N_BITS
    seed: int = 0

    def __post_init__(self) -> None:
        chosen = (self.codes, self.n_bits, self.seed) != ("auto", fitted.N_BITS, 0)
        if self.encoder is not None and not is_encoder(self.encoder) and chosen:
            raise InputError(
                f"--encoder {self.encoder}: a run has its own codes; leave out --codes, --bits and "
                "--seed, or name an encoder"
            )


def _fit_source(
    source: Source, new: NewCodes, progress: Progress
) -> tuple[fitted.FittedModel, list[EncodedBatch], Source]:
    """Fit codes to at most 20,000 items of a source, images that cannot be read left out; return
    also the source, with raw originals where no image beside them can be read.

    Memory grows with the sample's features, about 5 KB an image with ``photo-backbones``.
    """
    widths = fitted.feature_widths(source.records)
    encoder = open_encoder(new.encoder or (FEATURES if widths else "photo"), widths)
    if not encoder.modalities:
        raise InputError(
            "--encoder features: the items are images or texts; name the encoder of these, such as "
            "photo"
        )
    extract = fitted.FittedModel.from_encoder(encoder)
    source = source.encodable(extract)
    rows = _sample(source, encoder, new)
    batches = list[EncodedBatch]()
    for batch in encode_batches(extract, source, rows):
        batches.append(batch)
        progress(sum(len(batch.rows) + len(batch.unread) for batch in batches), len(rows))
    if not any(batch.rows for batch in batches):
        damaged = {source.records.ids[row] for batch in batches for row in batch.unread}
        with_raw = source.read_beside(damaged)
        if with_raw is not None:
            return _fit_source(with_raw, new, progress)
        problems = [
            *(each.problem for batch in batches for each in batch.unread.values()),
            *source.records.problems,
        ]
        raise InputError(
            f"{problems[0]}; none of the {len(rows):,} pictures can be read, give others"
        )
    model = fitted.fit_codes(encoder, _features(encoder, batches), new.n_bits, new.codes, new.seed)

    def project(features: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        return {
            name: model.project(name, rows)
            for name, rows in features.items()
            if name in model.modalities
        }

    ready = [
        batch._replace(
            outputs=project(batch.outputs), caption_outputs=project(batch.caption_outputs)
        )
        for batch in batches
    ]
    return model, ready, source


def _sample(source: Source, encoder: Encoder, new: NewCodes) -> list[int]:
    """Draw the rows to fit to: those with captions, where the fit joins two spaces by them."""
    candidates = np.arange(len(source.records))
    if source.captions and not encoder.one_space and new.codes in ("auto", "cca-itq"):
        captioned = np.flatnonzero([bool(texts) for texts in source.captions])
        if len(captioned) >= fitted.MIN_PAIRS or new.codes == "cca-itq":
            candidates = captioned
    drawn = generator(new.seed, "fit", len(candidates)).permutation(candidates)[:_SAMPLE]
    return [int(row) for row in np.sort(drawn)]


def _features(encoder: Encoder, batches: list[EncodedBatch]) -> dict[str, NDArray[np.float32]]:
    """Return features by modality; those of captions where all images have some, or where enough
    stand for all.
    """
    read = [batch.outputs for batch in batches if batch.rows]
    features = {name: np.concatenate([outputs[name] for outputs in read]) for name in read[0]}
    captions = [several for batch in batches for several in batch.captions]
    counts = [len(several) for several in captions if several]
    if counts and (
        len(counts) == len(captions) or (encoder.one_space and len(counts) >= fitted.MIN_PAIRS)
    ):
        every = np.concatenate(
            [batch.caption_outputs["text"] for batch in batches if batch.caption_outputs]
        )
        each = np.split(every, np.cumsum(counts)[:-1])
        features["text"] = np.stack([rows.mean(axis=0) for rows in each])
    return features


@dataclass(frozen=True)
class Index:
    """A collection that can be searched: its store, and the model that encodes queries.

    Attributes:
        store: the codes and what is known of the items.
        indexed: what became of the items when the store was last brought up to date.
        load: opens what encodes queries.
    """

    store: Store
    indexed: Indexed
    load: Callable[[], Model]

    @cached_property
    def encoder(self) -> Model:
        """What encodes queries, opened when it is first needed."""
        return self.load()

    def search(
        self,
        text: str | None = None,
        *,
        image: str | Path | Image.Image | None = None,
        like: str | None = None,
        minus: Sequence[str | Path | Image.Image] = (),
        minus_like: Sequence[str] = (),
        **options: Any,
    ) -> list[Hit]:
        """Return the items that answer words, an image, an item of the store, or several of them
        together.
        """
        return search_store(
            self.store,
            SearchOptions(**options),
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
        pictures: bool = True,
    ) -> list[DuplicateGroup]:
        """Return the groups of near-duplicates; arguments and errors as in `find_duplicates`."""
        return find_duplicates(self.store, radius, modality, where, pictures)


def index(
    source: str | Path,
    store: str | Path | None = None,
    *,
    model: str | PathLike[str] | None = None,
    encoder: Word | None = None,
    codes: fitted.Codes = "auto",
    bits: int = fitted.N_BITS,
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
        source: a folder of images, a table, a file of features or a configuration; see
            `Source.read`.
        store: the address of the store; for a folder of images by default ``.channelhash`` in it,
            or in the user's cache if the folder cannot be written; else beside ``source``,
            ``items.store`` for ``items.csv``.
        model: a run, its folder or a saved model. A store that keeps its model needs none once it
            is made.
        encoder: instead of ``model``, for a new store: ``"photo"`` or another encoder, see
            `models.encoders`. With neither, features are taken as they are, and images and texts go
            through ``photo``.
        codes: with an encoder, how items get codes: ``auto``, ``learned``, ``sign``, ``itq`` or
            ``cca-itq``.
        bits: with an encoder, the code length.
        root: for a table, the folder of its images.
        exclude: for a folder, patterns of paths to leave out, as in a ``.gitignore``, or paths in
            it; those of the last time if none. What they leave out leaves the store.
        captions: for a folder, a file with captions of its images, see `find_captions`; that of the
            last time if None.
        ocr: whether the text in images is read, see `Source`; for a folder, False holds until True
            is given.
        prune: for a folder, remove the items whose image is no longer in it.
        trust_code: consent to run code of this machine that the model or the store names
            (``python:module:NAME``).
        progress: stage -> its callback.

    Raises:
        InputError: there is a store of another encoder, the model names code and ``trust_code`` is
            false; or as `create_store` and `add_to_store`.

    Example::

        index = ch.index("photos", model="runs/table")
        [hit.id for hit in index.search("a dog on a beach", k=5)]
    """
    path = Path(source).resolve()
    address = default_address(path) if store is None else str(store)
    folder, saved = None if root is None else Path(root), None if model is None else Path(model)
    with trusting(trust_code):
        items = read_again(
            address, path, folder, exclude, None if captions is None else Path(captions), ocr
        )
        with _only_run(address, progress):
            if _holds_items(address):
                # a run is compared when it is loaded
                if encoder is not None and is_encoder(encoder):
                    _check_encoder(address, encoder)
                indexed = _add_to_store(address, items, saved, progress, prune)
            else:
                new = NewCodes(str(saved) if saved else encoder, codes, bits)
                indexed = _create_store(address, new, items, progress)
        opened = open_store(address)
        return Index(opened, indexed, partial(load_encoder, opened, saved, trust_code))


def _only_run(address: str, progress: StageProgress) -> AbstractContextManager[None]:
    """Return a block in which nobody else indexes into a store; of a store that is no folder, a
    block alone.
    """
    if address.startswith(tuple(STORES)) or Path(address).is_file():
        return nullcontext()
    return StoreFolder(find_or_keep(Path(address))).hold_run(progress)


def read_again(
    address: str,
    source: Path | None,
    root: Path | None = None,
    exclude: Sequence[str] = (),
    captions: Path | None = None,
    ocr: bool | None = None,
) -> Source:
    """Read the items for a store; of a folder it holds, exclusions, captions and a refused ``ocr``
    stay the same.
    """
    if ocr:
        open_reader()
    known = None if "://" in address else PhotoSource.read(find_or_keep(Path(address)))
    if source is None:
        if known is None:
            raise InputError(
                f"{address}: was not made of a folder of pictures; name the SOURCE of its items"
            )
    elif known is None or source.resolve() != known.folder.resolve():
        known = PhotoSource(source)  # of which nothing is known
    items = Source.read(
        known.folder,
        root,
        exclude or known.exclude,
        captions or known.captions,
        _still_damaged(known),
    )
    photos = items.photos and replace(
        items.photos, unread=known.unread, ocr=known.ocr if ocr is None else ocr
    )
    records = items.records
    if exclude:  # of those that are remembered, what they were for may be gone
        records = replace(records, problems=(*records.problems, *items.unmatched))
    return replace(items, records=records, photos=photos, ocr=ocr)


def _still_damaged(photos: PhotoSource) -> set[str]:
    """Return the ids of the images that could not be read the last time, and have not changed."""
    damaged = set()
    for name, unread in photos.unread.items():
        with suppress(OSError):  # it is gone, and lies beside no raw original any more
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


def _holds_items(address: str) -> bool:
    """Return whether there is a store at an address."""
    if not address.startswith(tuple(STORES)):
        return kind_of(Path(address)) == "store"
    try:
        with open_store(address) as store:
            return len(store) > 0
    except NoStoreError:
        return False


def _check_encoder(address: str, word: Word) -> None:
    """Refuse an encoder to whose features the codes of a store were not fitted."""
    with open_store(address) as store:
        present = fit_facts(described_fit(store)).get("encoder", "a run")
    if present != (name := in_one_word(absolute_word(word))):
        line = (
            f"{address}: holds codes of {present}, not of {name}; leave the encoder out, or make "
            "another store"
        )
        raise InputError(line)


def create_store(
    address: str,
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
        return _create_store(address, codes, source, progress, projections)


def _create_store(
    address: str,
    codes: NewCodes,
    source: Source | None,
    progress: StageProgress,
    projections: bool | None = None,
) -> Indexed:
    began = time.perf_counter()
    in_folder = not address.startswith(tuple(STORES))
    fits = codes.encoder is None or is_encoder(codes.encoder)
    if fits and not in_folder:
        raise InputError(
            f"{address}: keeps no model; make a store in a folder, then `channelhash index push` it"
        )
    _check_free(address)
    if not fits:
        encoder: Model = load_model(Path(str(codes.encoder)), device="auto")
        ready = list[EncodedBatch]()
    elif source is None:
        line = (
            f"{address}: codes are fitted to items; name their SOURCE, or a run that has codes: "
            "--model RUN"
        )
        raise InputError(line)
    else:
        encoder, ready, source = _fit_source(source, codes, progress("fit"))
    if in_folder:
        encoder.save_pretrained(Path(address) / "model")
    projected = fits if projections is None else projections
    with open_store(address, encoder.n_bits, encoder.fingerprint(), projected) as store:
        store.make()
        if source is None:
            return Indexed()
        done = _add(store, lambda: encoder, source.encodable(encoder), progress, encoded=ready)
    seconds = time.perf_counter() - began
    return replace(done, seconds=seconds, rate=done.added / seconds) if ready else done


def add_to_store(
    address: str,
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
        return _add_to_store(address, source, model, progress, prune)


def _add_to_store(
    address: str, source: Source, model: Path | None, progress: StageProgress, prune: bool
) -> Indexed:
    with open_store(address) as store:
        if not store.writable:
            raise InputError(
                f"{address}: can only be read; make a store with `channelhash index create`"
            )
        description = described_fit(store)
        load = partial(load_encoder, store, model)
        # whose networks only changes need
        if model is None and description and source.folder is not None:
            source = source.with_modalities(list(description["architecture"]["widths"]))
            return _add(store, load, source, progress, prune)
        encoder = load()
        source = source.encodable(encoder)
        # not its code_spaces: a student makes queries, but adds nothing
        if store.model in encoder.extends:
            folder = store.model_folder  # whose model may extend this one in turn, and stays then
            if folder is not None and encoder.fingerprint() not in load_model(folder).extends:
                encoder.save_pretrained(folder / "model")
        else:
            Facts(0, store.model).check(address, Facts(0, encoder.fingerprint()))
        return _add(store, lambda: encoder, source, progress, prune)


def _add(
    store: Store,
    load: Callable[[], Model],
    source: Source,
    progress: StageProgress,
    prune: bool = False,
    encoded: Sequence[EncodedBatch] = (),
) -> Indexed:
    photos = None if store.address.startswith(tuple(STORES)) else source.photos
    if photos is not None:  # a job that is killed goes on with it
        photos.write(find_or_keep(Path(store.address)))
    indexed, unread = index_source(store, load, source, progress, prune, encoded)
    with_raw = source.read_beside(unread.keys())
    if photos is not None and unread != photos.unread:
        photos = replace(photos, unread=unread)
        photos.write(find_or_keep(Path(store.address)))
    if with_raw is None:
        return indexed
    again = replace(with_raw, photos=replace(with_raw.photos or PhotoSource(Path()), unread=unread))
    rest, _ = index_source(store, load, again, progress, prune)
    return _join(indexed, rest)


def _join(first: Indexed, rest: Indexed) -> Indexed:
    """Return what became of a source that was read twice, the second time with more items."""
    return replace(
        rest,
        added=first.added + rest.added,
        replaced=first.replaced + rest.replaced,
        unchanged=first.unchanged,
        pruned=first.pruned + rest.pruned,
        problems=tuple(dict.fromkeys((*first.problems, *rest.problems))),
        seconds=first.seconds + rest.seconds,
        rate=first.rate or rest.rate,
        moved=first.moved + rest.moved,
    )


def put_codes(
    address: str, file: Path, is_new: bool = False, progress: Progress = no_progress
) -> Indexed:
    """Put the items of a file of codes into a store, over those of the same ids; leave those alone
    that are the same.

    Texts, pictures and labels are their metadata. A store that is made here keeps the fingerprint
    of the model that made the codes, but no model.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "codes.parquet")
    ...     CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8).save(file)
    ...     put_codes(f"{folder}/a.store", file, is_new=True).added
    2
    """
    codes = CodeSet.load(file)
    written = 0
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
        added = sum(name not in known for name in codes.ids)
        for start in range(0, len(codes), _BATCH):
            part = codes.take(range(start, min(start + _BATCH, len(codes))))
            metadata = metadata_of(part)
            stored = {
                item.id: item for item in store.get([name for name in part.ids if name in known])
            }
            each = enumerate(zip(part.ids, metadata, strict=True))
            rows = [
                row
                for row, (name, values) in each
                if not _is_stored(stored.get(name), part, row, values)
            ]
            if rows:
                news = part.take(rows)
                store.upsert(news.ids, news.codes, metadata=[metadata[row] for row in rows])
            written += len(rows)
            progress(start + len(part), len(codes))
        seconds = time.perf_counter() - began
        unchanged = len(codes) - written
        rate = written / seconds
        return Indexed(
            added, written - added, unchanged, items=len(store), seconds=seconds, rate=rate
        )


def _check_free(address: str) -> None:
    """Refuse to make a store where one is, or in a folder that holds something else."""
    if _holds_items(address):
        raise InputError(
            f"{address}: already a store; add to it with `channelhash index add {address} SOURCE`"
        )
    if not address.startswith(tuple(STORES)):
        StoreFolder(Path(address)).check_content()


def _check_store(address: str, source: str = "SOURCE") -> None:
    """Refuse to add to a folder that is no store."""
    if not address.startswith(tuple(STORES)) and kind_of(find_or_keep(Path(address))) != "store":
        raise InputError(
            f"{address}: no store; make one with `channelhash index create {address} {source}`"
        )


def _is_stored(item: Item | None, codes: CodeSet, row: int, metadata: Mapping[str, Any]) -> bool:
    """Return whether a store's item is that of a row already."""
    if item is None or any(item.metadata.get(key) != value for key, value in metadata.items()):
        return False
    return all(
        name in item.codes and np.array_equal(item.codes[name], rows[row])
        for name, rows in codes.codes.items()
    )
