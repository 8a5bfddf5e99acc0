"""From the command line's names to an application: store, model, token."""

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI

from channelhash.errors import InputError
from channelhash.search import STORES, open_store
from channelhash.search.photo_folders import find_or_keep
from channelhash.serve.app import create_app
from channelhash.serve.audit import AuditLog
from channelhash.serve.auth import Tokens, read_token
from channelhash.serve.limits import Limits

if TYPE_CHECKING:
    from channelhash.models import HashModel


def open_app(
    address: str,
    model: Path | None,
    limits: Limits,
    token_file: Path | None,
    hosts: Collection[str] | None,
    read_token_file: Path | None = None,
    audit_log: Path | None = None,
) -> FastAPI:
    """Open a store and create its application; see `create_app`.

    Args:
        address: address of an existing store, see `open_store`.
        model: a run or saved model; the store's own if None, and none at all if it has none.
        limits: limits of one request.
        token_file: file of the token that write calls need.
        hosts: host names that requests may name.
        read_token_file: file of the token that other calls need; None allows everybody to read.
        audit_log: file to which writes are noted.

    Raises:
        InputError: there is no such store, its codes are another model's, or a token is given for a store that can only
            be read.
    """
    is_path = not address.startswith(tuple(STORES))
    if is_path and not Path(address).exists():
        raise InputError(f"{address}: no such store; make one with `channelhash index create {address} --model RUN`")
    token = read_token(token_file) if token_file else None
    tokens = Tokens(token, read_token(read_token_file, "--read-token-file") if read_token_file else None)
    if token is not None and token == tokens.read:
        raise InputError("--read-token-file: holds the token of --token-file, so that whoever reads could write")
    audit = AuditLog(audit_log) if audit_log else None
    store = open_store(address)
    if token is not None and not store.writable:
        raise InputError(f"--token-file: {address} can only be read; make a store with `channelhash index create`")
    folder = model or store.model_folder
    encoder = _load(folder) if folder else None
    if encoder is not None and store.n_bits is None:  # the first items are this model's
        store.close()
        store = open_store(address, encoder.n_bits, encoder.fingerprint())
    if token is not None and encoder is not None and store.model in encoder.code_spaces:
        raise InputError(
            f"--token-file: {model} may search {address}, whose codes another model made; leave one of them out"
        )
    # Uploaded images are kept beside the codes where the store is a folder of its own.
    image_folder = find_or_keep(Path(address)).resolve() / "pictures" if is_path and store.writable else None
    return create_app(store, encoder, limits, tokens, hosts, image_folder, audit)


def _load(folder: Path) -> "HashModel":
    from channelhash.models import load_model  # PyTorch, which a store without a model does not need
    from channelhash.utils.device import pick_device

    return load_model(folder).to(pick_device("auto"))
