"""Search in codes: stores, exact nearest codes, answers for people."""

from collections.abc import Callable
from pathlib import Path

from channelhash.codeset import CodeSet
from channelhash.errors import InputError
from channelhash.search.store import Answers, Item, Store

Opener = Callable[[str, int | None, str], Store]


def open_store(address: str | Path, n_bits: int | None = None, model: str = "") -> Store:
    """A store of codes to add to and to search in.

    Args:
        address: a folder, made at the first `Store.add`; or, to be read only, a run's folder (its retrieval set) or a
            Parquet file of codes; or what begins with one of `STORES`, such as ``milvus+http://host:19530/collection``.
        n_bits: code length; from the first codes added if left out (8 bits a byte).
        model: fingerprint of the model whose codes go in.

    Raises:
        InputError: there is something else at that address, or a store of another code length or model.
    """
    text = str(address)
    for scheme, opener in STORES.items():
        if text.startswith(scheme):
            return opener(text, n_bits, model)
    return _open_path(text, n_bits, model)


def _open_path(address: str, n_bits: int | None, model: str) -> Store:
    from channelhash.search.embedded import open_codes, open_folder

    path = Path(address)
    if path.suffix == ".parquet":
        codes = CodeSet.load(path)
        _check_same(address, codes, n_bits, model)
        return open_codes(address, codes, None)
    if (path / "config.yaml").exists():
        file = path / "codes" / "test-retrieval.parquet"
        if not file.exists():
            raise InputError(f"{path}: this run has no codes yet; write them with `channelhash evaluate {path}`")
        codes = CodeSet.load(file)
        _check_same(address, codes, n_bits, model)
        return open_codes(address, codes, path)
    return open_folder(path, n_bits, model)


def _check_same(address: str, codes: CodeSet, n_bits: int | None, model: str) -> None:
    if n_bits is not None and n_bits != codes.n_bits:
        raise InputError(f"{address}: holds codes of {codes.n_bits} bits, not {n_bits}")
    if model and codes.model and model != codes.model:
        raise InputError(f"{address}: holds codes of another model; codes of two models cannot be compared")


#: Beginning of an address -> what opens it. Everything else is a path.
STORES: dict[str, Opener] = {}

__all__ = ["STORES", "Answers", "Item", "Store", "open_store"]
