"""What encodes queries to a store: its model, or the model's exported encoders, which need no PyTorch."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from channelhash.errors import InputError
from channelhash.models.exported import DESCRIPTION, FOLDER, ExportedModel
from channelhash.search.match import lacks_nonsense, learn_nonsense, nonsense
from channelhash.search.store import Store
from channelhash.utils.files import atomic_path
from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    from channelhash.models import HashModel


class QueryEncoder(Protocol):
    """What encodes queries: a `HashModel` or an `ExportedModel`."""

    n_bits: int

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities that it encodes."""

    def outputs(self, modality: str, items: Any) -> ArrayLike:
        """Return real-valued outputs ``(n, k)`` of ``n`` raw items; see `HashModel.outputs`."""

    def fingerprint(self) -> str:
        """Return the fingerprint of the model."""

    def comparable(self, model: str) -> bool:
        """Return whether its codes can be compared with those of the model with the fingerprint ``model``."""


def load_encoder(store: Store, model: "Path | HashModel | None" = None, trust_code: bool = False) -> "HashModel":
    """Load the model that encodes queries to a store.

    Args:
        store: the store to search.
        model: a run or saved model, or one that is loaded; the store's own if None.
        trust_code: consent to run code of this machine that the model's folder names (``python:module:NAME``).

    Raises:
        InputError: the store has no model and none is given, it cannot be loaded, it names code and ``trust_code`` is
            false, or another model made the codes.
    """
    if model is not None and not isinstance(model, str | Path):
        return model
    folder = model or store.model_folder
    if folder is None:
        raise InputError(
            f"{store.address}: to encode a question, add --model with the run that made these codes; the store holds "
            "no model, and only words (--by words) need none"
        )
    with naming_extra():
        from channelhash.models import load_model  # seconds to load, which words alone do not need
    encoder = load_model(folder, trust_code)
    _check(store, encoder, folder)
    return encoder


def load_query_encoder(
    store: Store,
    model: "Path | QueryEncoder | None" = None,
    modalities: Collection[str] | None = None,
    trust_code: bool = False,
) -> QueryEncoder:
    """Load what encodes queries to a store: the model's exported encoders where they are at hand, else the model.

    At hand are those in the subfolder ``onnx`` of the run or the store, where `channelhash export` writes them, of the
    model that made the store's codes.

    Args:
        store: the store to search.
        model: a run, a saved model or an exported one; the store's own if None.
        modalities: what will be encoded; None is all that the model encodes.
        trust_code: see `load_encoder`.

    Raises:
        InputError: as `load_encoder`, or the exported encoders are damaged.
    """
    if model is not None and not isinstance(model, str | Path):
        return model
    folder = model or store.model_folder
    if folder is not None and (Path(folder) / DESCRIPTION).exists():
        encoder = ExportedModel(Path(folder))
        _check(store, encoder, folder)
        if not encoder.is_whole:
            encoder.check_encodes(modalities or ())
        return encoder
    if folder is not None and (Path(folder) / FOLDER / DESCRIPTION).exists():
        encoder = ExportedModel(Path(folder) / FOLDER)
        read = encoder.modalities if encoder.is_whole else modalities
        enough = read is not None and encoder.reads(read)
        # What a run exported before it was trained further is passed over.
        if enough and store.model and encoder.comparable(store.model):
            return encoder
    return load_encoder(store, model, trust_code)


def learn_close(store: Store, encoder: QueryEncoder) -> None:
    """Let a store without captions say what is close to a text, see `channelhash.search.match`.

    What the encoder makes of texts that mean nothing is kept in the store's folder.
    """
    if "text" not in encoder.modalities or not lacks_nonsense(store, "text"):
        return
    folder = store.model_folder if store.writable else None
    file = None if folder is None else folder / f"nonsense-{encoder.fingerprint()}.npy"
    try:
        outputs = np.load(file) if file is not None and file.exists() else None
    except (OSError, ValueError, EOFError):  # damaged: made again
        outputs = None
    if outputs is None:
        outputs = np.asarray(encoder.outputs("text", nonsense()), np.float32)
        with suppress(OSError):
            if file is not None:
                with atomic_path(file) as temporary, open(temporary, "wb") as opened:
                    np.save(opened, outputs)
    learn_nonsense(store, "text", outputs)


def _check(store: Store, encoder: QueryEncoder, folder: str | Path) -> None:
    if store.model and not encoder.comparable(store.model):
        raise InputError(
            f"{store.address}: these codes were made by another model than {folder}, and codes of two models cannot be "
            "compared; name the model that made them, or encode them again"
        )
