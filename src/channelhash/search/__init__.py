"""Search in codes: stores, exact nearest codes, answers for people."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channelhash.codes import CodeSet
from channelhash.data.folder import STORE_FOLDER, no_such
from channelhash.errors import InputError, check_address
from channelhash.search.checks import check_count
from channelhash.search.index import CodeIndex
from channelhash.search.items import Facts, NoStoreError
from channelhash.search.milvus import MilvusStore
from channelhash.search.postgres import PostgresStore
from channelhash.search.store import Answers, Item, Store
from channelhash.utils.files import cache_folder
from channelhash.utils.public_names import load_name

if TYPE_CHECKING:
    from channelhash.search import filters as filters
    from channelhash.search.hits import Hit as Hit, Hits as Hits, search_hits as search_hits
    from channelhash.search.plan import combine as combine
    from channelhash.search.query import (
        encode_queries as encode_queries,
        load_encoder as load_encoder,
        search_store as search_store,
    )
    from channelhash.search.question import (
        Query as Query,
        SearchOptions as SearchOptions,
        parse_question as parse_question,
        query_like as query_like,
    )
    from channelhash.search.rank import Ranking as Ranking, fuse as fuse

#: Public name that is loaded on first use -> the module that it is, or that defines it.
_MODULES = {
    "Hit": "channelhash.search.hits",
    "Hits": "channelhash.search.hits",
    "Query": "channelhash.search.question",
    "Ranking": "channelhash.search.rank",
    "SearchOptions": "channelhash.search.question",
    "combine": "channelhash.search.plan",
    "encode_queries": "channelhash.search.query",
    "filters": "channelhash.search.filters",
    "fuse": "channelhash.search.rank",
    "load_encoder": "channelhash.search.query",
    "parse_question": "channelhash.search.question",
    "query_like": "channelhash.search.question",
    "search_hits": "channelhash.search.hits",
    "search_store": "channelhash.search.query",
}

__all__ = ["Answers", "CodeIndex", "Item", "Store", "open_store", *_MODULES]


def __getattr__(name: str) -> Any:
    return load_name(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted(__all__)


# What the first bytes of a run's, a store's and a model's files hold: other programs, too, write a
# config.json.
_MODEL = rb'(?s)(?=.*"name":)(?=.*"n_bits":)(?=.*"architecture":)'
_MARKS = {
    "run": {
        "config.yaml": rb"(?ms)\A(?=.*^data:)(?=.*^model:)(?=.*^loss:)(?=.*^train:)"
    },  # in any order
    "store": {
        "store.json": rb'"channelhash store',
        "items.sqlite": rb"CREATE TABLE removed \(serial",
        "model/config.json": _MODEL,
    },
    "model": {"config.json": _MODEL},
}


def open_store(
    address: str | Path,
    n_bits: int | None = None,
    model: str = "",
    projections: bool = False,
    mapped: bool = False,
) -> Store:
    """Open a store of codes to add to and to search in.

    Args:
        address: a folder; a folder of photographs that `channelhash.index` has made a store of; or,
            to be read only, a run's folder (its retrieval set) or a Parquet file of codes; or what
            begins with one of `STORES`.
        n_bits: code length, with which a store that is not there is made at the first `Store.add`.
        model: fingerprint of the model whose codes go in.
        projections: a new store keeps projections beside its codes (see
            `Store.search_projections`), which one in a folder or in PostgreSQL can; and one that is
            there must keep them.
        mapped: leave the codes of a store in a folder in its files, once they are checked: several
            processes that search it have them in memory once. Nobody else may write to these files.
            Other stores take no notice.

    Raises:
        InputError: the address holds a password; or there is something else at it, or nothing and
            no ``n_bits`` is given, or a store of another code length or model, or without
            projections.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/photos.store", n_bits=64) as store:
    ...     len(store), store.n_bits
    (0, 64)
    """
    # compiled code, seconds to load
    from channelhash.search.sqlite.store import open_codes, open_folder

    text = str(address)
    check_address(text)
    if n_bits is not None:
        check_count(n_bits, "n_bits", 1)
    scheme = next(filter(text.startswith, STORES), None)
    if scheme is not None:
        if projections and scheme not in KEEP_PROJECTIONS:
            raise InputError(
                f"{text}: keeps no projections; make a store in a folder, or search codes alone"
            )
        return _existing(
            STORES[scheme](text, n_bits, model, *([True] if projections else [])), n_bits
        )
    if "://" in text:
        expected = f"a folder, or an address that begins with: {', '.join(STORES) or 'none'}"
        raise InputError(f"no store is opened by {text!r}; expected {expected}")
    path = find_or_keep(Path(address))
    if codes := codes_at(path):
        if projections:
            raise InputError(f"{path}: holds codes without projections; make a store in a folder")
        return open_codes(CodeSet.load(codes), text, path if codes != path else None, n_bits, model)
    store = open_folder(path, Facts(n_bits or 0, model, projections), mapped)
    return store if kind_of(path) == "store" else _existing(store, n_bits)


def open_filled_store(address: str | Path) -> Store:
    """Open a store that has items."""
    is_path = "://" not in str(address) and not str(address).startswith(tuple(STORES))
    if is_path and not Path(address).exists():
        raise no_such(address)
    store = open_store(address)
    if not len(store):
        raise InputError(
            f"{address}: this store has no items yet; add some with `channelhash index add`"
        )
    return store


def _existing(store: Store, n_bits: int | None) -> Store:
    """Return a store that is there, or of which a code length is given."""
    if n_bits is None and store.n_bits is None:
        store.close()
        pictures = ", or put pictures into it" if Path(store.address).is_dir() else ""
        problem = (
            f"no store at {store.address}: neither a run's folder nor a Parquet file of codes "
            "nor a store"
        )
        remedy = f"make a store with `channelhash index create`{pictures}; in Python, give n_bits"
        raise NoStoreError(f"{problem}; {remedy}")
    return store


def codes_at(path: Path) -> Path | None:
    """Return the file of codes that a run's folder holds or that ``path`` is; None for a store.

    >>> codes_at(Path("items.parquet")).name, codes_at(Path("photos.store"))
    ('items.parquet', None)
    """
    kind = kind_of(path)
    if kind == "run":
        codes = path / "codes" / "test-retrieval.parquet"
        if not codes.exists():
            raise InputError(
                f"{path}: this run has no codes yet; write them with `channelhash evaluate {path}`"
            )
        return codes
    return path if kind == "codes" else None


def kind_of(path: Path) -> str:
    """Return what is at a path: a ``"run"``, ``"store"``, ``"model"``, ``"codes"`` or plain
    ``"folder"``; else ``""``.

    A store may be damaged, or one whose first items are yet to come.

    >>> kind_of(Path(os.sep)), kind_of(Path("lost.store"))
    ('folder', '')
    """
    if path.is_dir():
        kinds = (
            kind for kind, marks in _MARKS.items() if any(_holds(path / n, marks[n]) for n in marks)
        )
        return next(kinds, "folder")
    return "codes" if path.suffix == ".parquet" else ""


def _holds(file: Path, mark: bytes) -> bool:
    """Return whether a file begins with what only this package writes."""
    with suppress(OSError), open(file, "rb") as opened:
        return re.search(mark, opened.read(65536)) is not None
    return False


def holds_files(address: str) -> bool:
    """Return whether an address is that of a plain folder with files in it, hidden ones left
    out.
    """
    path = Path(address)
    return "://" not in address and kind_of(path) == "folder" and any(path.glob("[!.]*"))


def find_store(folder: Path) -> Path | None:
    """Return the store that was made of a plain folder: in it, or in the user's cache; None if
    there is none.
    """
    return next((place for place in _places(folder) if kind_of(place) == "store"), None)


def find_or_keep(path: Path) -> Path:
    """Return the store of a plain folder that has one, and every other path as it is."""
    return (find_store(path) if kind_of(path) == "folder" else None) or path


def choose_place(folder: Path) -> Path:
    """Return where a new store belongs: in the photographs' folder, or in the user's cache if that
    is read-only.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as photos:
    ...     choose_place(Path(photos)).name
    '.channelhash'
    """
    for place in _places(folder):
        try:
            place.mkdir(parents=True, exist_ok=True)  # the only sure test
            if os.access(place, os.W_OK):
                return place
            reason: str | None = "Permission denied"
        except OSError as error:
            reason = error.strerror
        finally:
            with suppress(OSError):
                place.rmdir()
    where = f"{place}: no store can be made here or in {folder} ({reason})"
    raise InputError(f"{where}; name one: `channelhash index create STORE {folder}`")


def _places(folder: Path) -> Iterator[Path]:
    """Yield where the store of a plain folder may be: in it, or in the cache of a user who has
    one.
    """
    yield folder / STORE_FOLDER
    where = os.path.realpath(folder)
    with suppress(InputError):
        yield (
            cache_folder()
            / f"{Path(where).name}-{hashlib.sha256(os.fsencode(where)).hexdigest()[:16]}"
        )


#: Beginning of an address -> what opens it: ``(address, n_bits, model) -> Store``. Everything else
#: is a path.
STORES: dict[str, Callable[..., Store]] = {
    "milvus+": MilvusStore,
    "postgresql://": PostgresStore,
}

#: Those whose opener takes ``projections`` as its last argument.
KEEP_PROJECTIONS = ("postgresql://",)
