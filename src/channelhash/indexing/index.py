"""Index a collection in one call, and search it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray
from PIL import Image

from channelhash.duplicates import DuplicateGroup, find_duplicates, regroup
from channelhash.indexing.encode import Indexed
from channelhash.indexing.fit import NewCodes
from channelhash.indexing.source import Source
from channelhash.indexing.stores import (
    holds_items,
    only_run,
    open_new_store,
    open_updated_store,
    read_again,
)
from channelhash.models import fitted
from channelhash.models.description import EncoderWord, Model
from channelhash.search import Address, Store
from channelhash.search.address import choose_place, find_store
from channelhash.search.hits import Hits, SearchOptions
from channelhash.search.query import load_encoder, search_store
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.typed_settings import trusting


@dataclass(frozen=True)
class Index:
    """A collection that can be searched: its store, and the model that encodes queries.

    Attributes:
        store: the codes and what is known of the items.
        indexed: the counts of the last indexing.
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
        vector: NDArray[Any] | None = None,
        minus: Sequence[str | Path | Image.Image] = (),
        minus_like: Sequence[str] = (),
        k: int = 10,
        radius: int | None = None,
        limit: int | None = None,
        by: Literal["all", "image", "text", "vector", "words"] | None = None,
        modality: str | None = None,
        where: str | None = None,
        collapse: int | bool | None = None,
        offset: int = 0,
        leave_out: str | None = None,
        fitting: bool = False,
    ) -> Hits:
        """Search with words, an image, an item of the store, or a combination.

        Args:
            text: words. Dates and places among them narrow the search, ``-word`` steers away.
            image: an image file or an opened image.
            like: id of an item of the store.
            vector: ``(d,)``, in an index of vectors.
            minus: words or images that are not wanted.
            minus_like: ids of items that are not wanted.
            k: number of answers, 1 or more. This option and the next ones are those of
                `channelhash.search.SearchOptions`.

        Returns:
            The hits, best first. A larger ``k`` only appends hits.

        Raises:
            InputError: nothing is asked for, an option is out of its range or contradicts another,
                the filter is wrong, an id is unknown, or an image cannot be read.

        Example::

            index = ch.index("photos", model="model")
            [(hit.id, hit.distance) for hit in index.search("a dog on a beach", k=5)]
        """
        options = SearchOptions(
            k, radius, limit, modality, where, collapse, by, offset, leave_out, fitting, regroup
        )
        return search_store(
            self.store,
            options,
            text=text,
            image=Path(image) if isinstance(image, str) else image,
            like=like,
            vector=vector,
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
    array: str | None = None,
    ids: str | Path | None = None,
    exclude: Sequence[str] = (),
    captions: str | Path | None = None,
    ocr: bool | None = None,
    prune: bool = False,
    trust_code: bool = False,
    progress: StageProgress = no_stage_progress,
) -> Index:
    """Create the store of a collection, or bring it up to date, and open it for searching.

    Args:
        source: a folder of images, a table, a file of vectors or features, or a configuration.
        store: the address of the store. Default for a folder of images: ``.channelhash`` in it, or
            in the user's cache if the folder is read-only; for ``items.csv``: ``items.store``.
        model: a run, its folder or a saved model. A store that keeps its model needs none later.
        encoder: instead of ``model``, for a new store, see `channelhash.models.open_encoder`;
            ``photo`` unless the items are vectors or features.
        codes: with an encoder: ``auto``, ``learned``, ``sign``, ``itq`` or ``cca-itq``.
        n_bits: with an encoder, the code length k, 1 or more.
        root: for a table, the folder of its images.
        array: the array or column of vectors, where there are several or a table has texts, too.
        ids: a text file of the vectors' ids, one a line.
        exclude: for a folder, paths in it to leave out, or patterns as in a ``.gitignore``; if
            empty, those of the last time. Items that they leave out are removed.
        captions: for a folder, a file with captions of its images; if None, that of the last time.
        ocr: whether to read the text in images, also in those stored without it. None reads it in
            new images of a folder if the extra ``ocr`` is installed and False was never given.
        prune: for a folder, remove the items whose image is no longer in it.
        trust_code: run code of this machine that model or store name (``python:module:NAME``).
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
    saved, table_root, caption_file, id_file = map(_optional_path, (model, root, captions, ids))
    new = NewCodes(str(saved) if saved else encoder, codes, n_bits)
    with trusting(trust_code):
        items = read_again(address, path, table_root, exclude, caption_file, ocr, array, id_file)
        opened, indexed = _bring_up_to_date(address, new, items, saved, prune, progress)
        return Index(opened, indexed, partial(load_encoder, opened, saved, trust_code))


def begin_index(
    source: str | Path,
    *,
    model: Path | None,
    encoder: EncoderWord | None,
    exclude: Sequence[str],
    captions: Path | None,
    prune: bool,
    progress: StageProgress,
) -> Index:
    """Do as `index` of a folder of images, but leave its images to `add_to_store` unless codes have
    to be fitted to them.
    """
    folder = Path(source).resolve()
    address = Address.parse(default_address(folder))
    new = NewCodes(str(model) if model else encoder)
    items = read_again(address, folder, None, exclude, captions)
    opened, indexed = _bring_up_to_date(address, new, items, model, prune, progress, waits=False)
    if not indexed.items:  # what is wrong with the exclusions is known already
        indexed = replace(indexed, problems=items.unmatched)
    return Index(opened, indexed, partial(load_encoder, opened, model))


def _bring_up_to_date(
    address: Address,
    new: NewCodes,
    items: Source,
    model: Path | None,
    prune: bool,
    progress: StageProgress,
    waits: bool = True,
) -> tuple[Store, Indexed]:
    """Add items to a store, which is made if there is none, and return the open store."""
    with only_run(address, progress):
        if not holds_items(address):
            return open_new_store(address, new, items, progress, waits=waits)
        encoder = None if model else new.encoder
        return open_updated_store(address, items, model, progress, prune, encoder, waits)


def default_address(source: Path) -> str:
    """Return the default address of a source's store."""
    if source.is_dir():
        return str(find_store(source) or choose_place(source))
    return str(source.with_suffix(".store"))


def _optional_path(path: str | PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path)
