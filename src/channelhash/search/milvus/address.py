"""Addresses of collections in Milvus, and the connection to what they name."""

import logging
import os
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from channelhash.errors import InputError, check_address
from channelhash.utils.optional_imports import library
from channelhash.utils.typed_settings import unknown

#: Where the token of a server is read from; an address ends up in logs, this does not.
TOKEN_VARIABLE = "MILVUS_TOKEN"

_CONNECT_SECONDS = 10


@dataclass(frozen=True)
class Index:
    """How a collection's codes are indexed.

    Attributes:
        kind: ``BIN_FLAT`` (every code is compared, exact) or ``BIN_IVF_FLAT`` (only the ``n_probe`` clusters nearest to
            a query, of ``n_lists``: faster, and **approximate**: what lies in other clusters is not found).
        n_lists: number of clusters, of BIN_IVF_FLAT.
        n_probe: how many of them a search looks into.

    >>> Index("BIN_IVF_FLAT", n_lists=128).n_probe
    16
    """

    kind: str = "BIN_FLAT"
    n_lists: int = 1024
    n_probe: int = 16


@dataclass(frozen=True)
class MilvusAddress:
    """A collection and where it is.

    Attributes:
        text: as it was given.
        uri: of the server.
        collection: its name.
        index: what a new collection is indexed by; None where the address does not say.

    >>> parse_address("milvus+http://localhost:19530/photos").uri
    'http://localhost:19530'
    """

    text: str
    uri: str
    collection: str
    index: Index | None = None


def parse_address(text: str) -> MilvusAddress:
    """Parse the address of a collection.

    It is ``milvus+http://host:port/collection?index=BIN_IVF_FLAT&nlist=1024&nprobe=16``; the options may be left out.

    Raises:
        InputError: it has another form, or holds a password or token.

    >>> parse_address("milvus+http://localhost:19530/photos").collection
    'photos'
    """
    check_address(text)
    rest = text.removeprefix("milvus+")
    if not rest.startswith(("http://", "https://")):
        raise InputError(f"{text}: write it as milvus+http://HOST:PORT/COLLECTION; in a file, use a store's folder")
    try:
        parts = urlsplit(rest)
        server_is_named = bool(parts.hostname and parts.port)
    except ValueError:
        server_is_named = False
    if not server_is_named or not (name := parts.path.strip("/")) or parts.fragment:
        raise InputError(f"{text}: write it as milvus+http://HOST:PORT/COLLECTION")
    _check_collection(text, name)
    return MilvusAddress(text, f"{parts.scheme}://{parts.netloc}", name, _index(text, parts.query))


def connect(address: MilvusAddress) -> Any:
    """Return a `pymilvus.MilvusClient`.

    Raises:
        InputError: pymilvus is missing, or nothing answers there.
    """
    pymilvus = library("pymilvus", "milvus")
    # Errors are raised as well, and told in one line; pymilvus would print a traceback before.
    logging.getLogger("pymilvus.decorators").setLevel(logging.CRITICAL)
    try:
        return pymilvus.MilvusClient(
            uri=address.uri,
            token=os.environ.get(TOKEN_VARIABLE, ""),
            timeout=_CONNECT_SECONDS,
        )
    except pymilvus.MilvusException as error:
        hint = f"is the server there, and {TOKEN_VARIABLE} right?"
        reason = " ".join(str(error.message).split())
        raise InputError(f"{address.text}: cannot be opened ({reason}); {hint}") from None


def _check_collection(text: str, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,254}", name):
        raise InputError(f"{text}: {name!r} is no name of a collection; up to 255 letters, digits and '_'")


def _index(text: str, query: str) -> Index | None:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in ("index", "nlist", "nprobe"):
            raise InputError(f"{text}: {unknown(f'option {name!r}', name, ['index', 'nlist', 'nprobe'])}")
    if not options:
        return None
    kind = options.pop("index", "")
    if kind not in ("BIN_FLAT", "BIN_IVF_FLAT"):
        raise InputError(f"{text}: index is {kind!r}; BIN_FLAT (exact) or BIN_IVF_FLAT (approximate) is expected")
    if kind == "BIN_FLAT":
        if options:
            raise InputError(f"{text}: {next(iter(options))} belongs to BIN_IVF_FLAT; leave it out")
        return Index()
    n_lists = _whole(text, "nlist", options.get("nlist", "1024"), 65_536)
    return Index(kind, n_lists, _whole(text, "nprobe", options.get("nprobe", str(min(16, n_lists))), n_lists))


def _whole(text: str, name: str, value: str, most: int) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= most:
        raise InputError(f"{text}: {name} is {value!r}; a whole number from 1 to {most} is expected")
    return int(value)
