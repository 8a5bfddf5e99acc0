"""Stores with their model: making one, and adding a collection to it."""

from pathlib import Path

from channelhash.errors import InputError
from channelhash.indexing.encode import Indexed, index_source
from channelhash.indexing.source import read_source
from channelhash.models import HashModel, load_model
from channelhash.search import STORES, open_store
from channelhash.search.query import load_encoder
from channelhash.search.store import Store
from channelhash.utils.device import pick_device
from channelhash.utils.progress import StageProgress, no_stage_progress


def create_store(
    address: str,
    model: Path,
    source: Path | None = None,
    root: Path | None = None,
    progress: StageProgress = no_stage_progress,
) -> Indexed:
    """A new store with the items of ``source``, see `add_to_store`.

    A folder gets a copy of the model in ``model/``, so that it can be moved and searched without the run. Other stores
    keep the model's fingerprint alone.

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
    source: Path,
    model: Path | None = None,
    root: Path | None = None,
    progress: StageProgress = no_stage_progress,
    prune: bool = False,
) -> Indexed:
    """Encode what is new or changed in ``source`` into a store that was made with `create_store`.

    Args:
        address: the store.
        source: see `read_source`.
        model: for a store without model: the run or saved model that made its codes. Or one that extends the store's
            model (`HashModel.extends`): it encodes what is added, the codes that are there stay, and a store in a
            folder takes it over, for questions too.
        root: see `read_source`.
        progress: stage -> its callback.
        prune: see `index_source`.

    Raises:
        InputError: there is no such store, it cannot be written to, its codes are another model's; or as `read_source`
            and `index_source`.
    """
    if not address.startswith(tuple(STORES)) and not _is_there(Path(address)):
        raise InputError(f"{address}: no store; make one with `channelhash index create {address} --model RUN`")
    store = open_store(address)
    if not store.writable:
        raise InputError(f"{address}: can only be read; make a store with `channelhash index create`")
    encoder = load_encoder(store, model)
    made_by = encoder.fingerprint()
    if store.model in encoder.extends:  # not its code_spaces: a student asks, but adds nothing
        made_by = store.model
        if store.model_folder is not None:
            _take_over(store.model_folder, encoder)
    store.close()
    store = open_store(address, encoder.n_bits, made_by)
    return _add(store, encoder, source, root, progress, prune)


def _take_over(folder: Path, encoder: HashModel) -> None:
    """Make ``encoder``, which reads the store's codes, the store's own model; one that extends it in turn stays."""
    if encoder.fingerprint() not in load_model(folder).extends:
        encoder.save_pretrained(folder / "model")


def _add(
    store: Store, encoder: HashModel, source: Path | None, root: Path | None, progress: StageProgress, prune: bool
) -> Indexed:
    try:
        if source is None:
            return Indexed()
        encoder.to(pick_device("auto"))
        return index_source(store, encoder, read_source(source, root), progress, prune)
    finally:
        store.close()


def _claim(folder: Path) -> None:
    """Only an empty folder becomes a store, or one in which an earlier attempt ended before its model was written."""
    if _is_there(folder):
        raise InputError(f"{folder}: already a store; add to it with `channelhash index add {folder} SOURCE`")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; name a folder for the store")
    if folder.is_dir() and any(entry.name != "model" for entry in folder.iterdir()):
        raise InputError(f"{folder}: is not empty and no store; choose another folder")


def _is_there(folder: Path) -> bool:
    return (folder / "model" / "config.json").exists() or (folder / "store.json").exists()
