"""Stores with their model: make one, and bring it up to date with a collection."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from PIL import Image

from channelhash.errors import InputError
from channelhash.indexing.encode import Indexed, index_source
from channelhash.indexing.source import Source, read_source
from channelhash.models import HashModel, load_model
from channelhash.search import STORES, open_store
from channelhash.search.duplicates import RADIUS, DuplicateGroup, find_duplicates
from channelhash.search.hits import Hit, SearchOptions
from channelhash.search.photo_folders import find_or_keep, is_store
from channelhash.search.query import load_encoder, search_store
from channelhash.search.store import Store
from channelhash.utils.device import pick_device
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.python_names import trusting


@dataclass(frozen=True)
class Index:
    """A collection that can be searched: its store, and the model that encodes queries.

    Attributes:
        store: the codes and what is known of the items.
        encoder: encodes queries.
        indexed: what became of the items when the store was last brought up to date.
    """

    store: Store
    encoder: HashModel
    indexed: Indexed

    def search(
        self,
        text: str | None = None,
        *,
        image: str | Path | Image.Image | None = None,
        like: str | None = None,
        **options: Any,
    ) -> list[Hit]:
        """Return the items nearest to words, an image, or an item of the store.

        Args:
            text: words to search with.
            image: an image file, or an opened image.
            like: the id of an item.
            options: fields of `SearchOptions`: ``k``, ``radius``, ``modality``, ``where``, ``rerank`` …

        Raises:
            InputError: not exactly one of ``text``, ``image`` and ``like`` is given; or as `search_store`.
        """
        file = Path(image) if isinstance(image, str) else image
        return search_store(self.store, SearchOptions(**options), text=text, image=file, like=like, model=self.encoder)

    def duplicates(
        self, radius: int = RADIUS, modality: str | None = None, where: str | None = None
    ) -> list[DuplicateGroup]:
        """Return the groups of near-duplicates; arguments and errors as in `find_duplicates`."""
        return find_duplicates(self.store, radius, modality, where)


def index(
    source: str | Path,
    store: str | Path | None = None,
    *,
    model: str | PathLike[str] | None = None,
    root: str | Path | None = None,
    exclude: Sequence[str] = (),
    captions: str | Path | None = None,
    prune: bool = False,
    trust_code: bool = False,
    progress: StageProgress = no_stage_progress,
) -> Index:
    """Make a store of a collection, or bring it up to date, and open it for searching.

    Args:
        source: a folder of images, a table, a file of features or a configuration; see `read_source`.
        store: the address of the store; by default a folder beside ``source``, ``photos.store`` for ``photos``.
        model: a run, its folder or a saved model. A store that keeps its model needs none once it is made.
        root: for a table, the folder of its images.
        exclude: for a folder, patterns of paths to leave out, as in a ``.gitignore``.
        captions: for a folder, a file with captions of its images, see `read_captions`.
        prune: for a folder, remove the items whose image is no longer in it.
        trust_code: consent to run code of this machine that the model or the store names (``python:module:NAME``).
        progress: stage -> its callback.

    Raises:
        InputError: there is no store yet and no ``model``, the model names code and ``trust_code`` is false; or as
            `create_store` and `add_to_store`.

    Example::

        index = ch.index("photos", model="runs/table")
        [hit.id for hit in index.search("a dog on a beach", k=5)]
    """
    path = Path(source).resolve()
    address = str(path.with_name(f"{path.stem if path.is_file() else path.name}.store") if store is None else store)
    folder, saved = None if root is None else Path(root), None if model is None else Path(model)
    with trusting(trust_code):
        items = read_source(path, folder, exclude, None if captions is None else Path(captions))
        if _holds_items(address):
            indexed = add_to_store(address, items, saved, None, progress, prune)
        elif saved is None:
            raise InputError(f"{address}: there is no store yet; name the model that encodes its items (model=)")
        else:
            indexed = create_store(address, saved, items, None, progress)
        opened = open_store(address)
        return Index(opened, load_encoder(opened, saved), indexed)


def _holds_items(address: str) -> bool:
    """Return whether there is a store at an address."""
    if not address.startswith(tuple(STORES)):
        return is_store(Path(address))
    store = open_store(address)
    try:
        return len(store) > 0
    finally:
        store.close()


def create_store(
    address: str,
    model: Path,
    source: Path | Source | None = None,
    root: Path | None = None,
    progress: StageProgress = no_stage_progress,
) -> Indexed:
    """Make a new store with the items of ``source``; the arguments are those of `add_to_store`.

    A folder gets a copy of the model in ``model/``, so that it can be moved and searched without the run. Other stores
    keep only the model's fingerprint.

    Raises:
        InputError: there is something at that address already; or as `add_to_store`.
    """
    encoder = load_model(model)
    if address.startswith(tuple(STORES)):
        store = open_store(address, encoder.n_bits, encoder.fingerprint())
        if len(store):
            raise InputError(f"{address}: already holds items; add to them with `channelhash index add`")
    else:
        _claim(Path(address))
        encoder.save_pretrained(Path(address) / "model")
        store = open_store(address, encoder.n_bits, encoder.fingerprint())
    return _add(store, encoder, source, root, progress, prune=False)


def add_to_store(
    address: str,
    source: Path | Source,
    model: Path | None = None,
    root: Path | None = None,
    progress: StageProgress = no_stage_progress,
    prune: bool = False,
) -> Indexed:
    """Encode what is new or changed in ``source`` into a store that was made with `create_store`.

    Args:
        address: the store.
        source: what `read_source` reads or has read.
        model: for a store without model: the run or saved model that made its codes. Or one that extends the store's
            model (`HashModel.extends`): it encodes what is added, existing codes stay, and a store in a folder takes it
            over, for queries too.
        root: see `read_source`.
        progress: stage -> its callback.
        prune: see `index_source`.

    Raises:
        InputError: there is no such store, it cannot be written to, its codes are another model's; or as `read_source`
            and `index_source`.
    """
    if not address.startswith(tuple(STORES)) and not is_store(find_or_keep(Path(address))):
        raise InputError(f"{address}: no store; make one with `channelhash index create {address} --model RUN`")
    store = open_store(address)
    if not store.writable:
        raise InputError(f"{address}: can only be read; make a store with `channelhash index create`")
    encoder = load_encoder(store, model)
    made_by = encoder.fingerprint()
    if store.model in encoder.extends:  # not its code_spaces: a student makes queries, but adds nothing
        made_by = store.model
        if store.model_folder is not None:
            _take_over(store.model_folder, encoder)
    store.close()
    store = open_store(address, encoder.n_bits, made_by)
    return _add(store, encoder, source, root, progress, prune)


def _take_over(folder: Path, encoder: HashModel) -> None:
    """Make ``encoder``, which reads the store's codes, the store's own model, unless that extends it in turn."""
    if encoder.fingerprint() not in load_model(folder).extends:
        encoder.save_pretrained(folder / "model")


def _add(
    store: Store,
    encoder: HashModel,
    source: Path | Source | None,
    root: Path | None,
    progress: StageProgress,
    prune: bool,
) -> Indexed:
    try:
        if source is None:
            return Indexed()
        encoder.to(pick_device("auto"))
        items = source if isinstance(source, Source) else read_source(source, root)
        return index_source(store, encoder, items, progress, prune)
    finally:
        store.close()


def _claim(folder: Path) -> None:
    """Refuse a folder that is not empty, unless an earlier attempt ended in it before its model was written."""
    if is_store(folder):
        raise InputError(f"{folder}: already a store; add to it with `channelhash index add {folder} SOURCE`")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the store")
    if folder.is_dir() and any(entry.name != "model" for entry in folder.iterdir()):
        raise InputError(f"{folder}: is not empty and no store; choose another folder")
