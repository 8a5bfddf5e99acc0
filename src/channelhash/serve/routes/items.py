"""``/items`` and ``/facets``: read, browse, add and delete items; ``/images`` and ``/originals``: their images."""

import asyncio
import hashlib
from email.utils import formatdate
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, Form, HTTPException, Query, Request, Response
from fastapi.responses import FileResponse
from PIL import Image
from pydantic import TypeAdapter, ValidationError
from starlette.convertors import Convertor, register_url_convertor

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.errors import InputError
from channelhash.serve.encoding import Outputs
from channelhash.serve.images import MAX_SIDE, UploadedImage
from channelhash.serve.limits import check_length, check_narrowing, check_number
from channelhash.serve.middleware import PROBLEMS, WRITE_PROBLEMS
from channelhash.serve.responses import content_tag, make_browsed_item, make_item_response
from channelhash.serve.routing import Route, WriteRoute
from channelhash.serve.schemas import (
    BrowsedItems,
    BrowseOptions,
    Facet,
    Facets,
    ItemResponse,
    Metadata,
    NewItem,
    NewItems,
    WriteResponse,
)
from channelhash.serve.service import CurrentService, Service
from channelhash.utils.files import atomic_path
from channelhash.utils.image_files import open_image


class _AnyText(Convertor[str]):
    """An id in an address: any characters, including ``/`` and line breaks."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _AnyText())
_CACHED = {"Cache-Control": "private, max-age=300"}
_FILE = {"schema": {"type": "string", "format": "binary"}}
_UNCHANGED = {"description": "The client has it already, as its header If-None-Match says."}
readers = APIRouter(tags=["items"], responses=PROBLEMS, route_class=Route)
writers = APIRouter(tags=["items"], responses=WRITE_PROBLEMS, route_class=WriteRoute)


@readers.get("/items")
async def browse(options: Annotated[BrowseOptions, Query()], service: CurrentService) -> BrowsedItems:
    """Return some of the items in an order; over all offsets each comes once, as long as nothing is written."""
    check_narrowing(options, service.limits.characters)

    def work() -> BrowsedItems:
        where = service.browser.narrow(options.where, options.label, options.folder, options.month)
        part = slice(options.offset, options.offset + min(options.limit, service.limits.k))
        total, ids = service.browser.select(where, options.order, options.seed, part)
        items = [make_browsed_item(item) for item in service.store.get(ids)]
        return BrowsedItems(total=total, offset=options.offset, items=items)

    def work_again() -> BrowsedItems:
        try:
            return work()
        except InputError:  # an item may have been deleted since the items were counted
            service.browser.forget()
            return work()

    return await run_sync(work_again, limiter=service.searching)


@readers.get("/facets")
async def facets(service: CurrentService) -> Facets:
    """Return the labels, folders and months of all items, with the number of items of each."""

    def work() -> Facets:
        catalogue, counts = service.browser.catalogue(), service.store.label_counts()
        kinds = (counts, catalogue.folders, catalogue.months)
        labels, folders, months = ([Facet(name=name, count=count) for name, count in kind.items()] for kind in kinds)
        return Facets(labels=labels, folders=folders, months=months)

    return await run_sync(work, limiter=service.searching)


@readers.get("/items/{item_id:id}")
def get_item(item_id: str, service: CurrentService) -> ItemResponse:
    """Return one item: its codes and metadata. Percent-encode the id, slashes too."""
    return make_item_response(service.get_item(item_id))


@readers.get(
    "/images/{item_id:id}",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": _FILE}, "description": "A JPEG file."}, 304: _UNCHANGED},
)
async def get_image(
    item_id: str,
    service: CurrentService,
    size: Annotated[int, Query(ge=16, le=MAX_SIDE, description="Long side.")] = 256,
) -> Response:
    """Return the thumbnail of a stored item's picture."""

    def draw() -> Response:
        path = service.get_item(item_id).metadata.get("image")
        if not isinstance(path, str) or not path:
            raise HTTPException(404, "this item has no picture")
        content, changed = service.thumbnails.jpeg(Path(path), size)
        headers = {**_CACHED, "ETag": content_tag(content), "Last-Modified": formatdate(changed, usegmt=True)}
        return Response(content, media_type="image/jpeg", headers=headers)

    return await run_sync(draw, limiter=service.drawing)


@readers.get(
    "/originals/{item_id:id}",
    response_class=Response,
    responses={200: {"content": {"image/*": _FILE}, "description": "The file as it is stored."}, 304: _UNCHANGED},
)
def get_original(item_id: str, service: CurrentService) -> Response:
    """Return the file of a stored item's picture, with all that its camera wrote into it."""
    path = service.get_item(item_id).metadata.get("image")
    try:
        with open_image(str(path or "")) as opened:
            # Browsers show the first picture of an MPO file, which is a JPEG file.
            name = "JPEG" if opened.format == "MPO" else opened.format or ""
            media_type = Image.MIME.get(name, "application/octet-stream")
    except OSError:
        raise HTTPException(404, "this item has no picture, or it cannot be read any more") from None
    return FileResponse(str(path), media_type=media_type, headers=_CACHED)


@writers.post("/items", status_code=201)
async def add_items(request: Request, new: NewItems, service: CurrentService) -> WriteResponse:
    """Add items, all of them or none: texts are encoded here, codes are stored as they are."""
    check_number("items", len(new.items), service.limits.items)
    for item in new.items:
        check_length("id", item.id, service.limits.characters)
        check_length("text", item.text, service.limits.characters)
        _check_metadata(item.metadata)
    encoded = await asyncio.gather(*[_encode_item(service, item) for item in new.items])
    modalities = sorted(encoded[0])
    for item, parts in zip(new.items, encoded, strict=True):
        if sorted(parts) != modalities:
            raise HTTPException(
                422,
                f"items: {new.items[0].id!r} has codes of {' and '.join(modalities)}, {item.id!r} of "
                f"{' and '.join(sorted(parts))}; send such items in requests of their own",
            )
    packed = {modality: _stack([parts[modality].code for parts in encoded], modality) for modality in modalities}
    projections = _projections(service, encoded)
    metadata = [item.metadata | ({} if item.text is None else {"text": item.text}) for item in new.items]
    ids = [item.id for item in new.items]

    def write() -> None:
        with service.noted(request, ids):
            (service.store.upsert if new.replace else service.store.add)(ids, packed, None, metadata, projections)

    await run_sync(write)
    return WriteResponse(items=len(ids))


@writers.post("/items/image", status_code=201)
async def add_image(
    request: Request,
    service: CurrentService,
    id: Annotated[str, Form(min_length=1)],
    image: UploadedImage,
    text: Annotated[str | None, Form(description="Encoded as well, and shown.")] = None,
    metadata: Annotated[str, Form(description='A JSON object, such as {"labels": ["dog"], "year": 2020}.')] = "{}",
    replace: Annotated[bool, Form(description="Replace the codes that the item has already.")] = False,
) -> WriteResponse:
    """Add one item by its picture, and a text if there is one. A small copy of the picture is kept to be shown."""
    check_length("id", id, service.limits.characters)
    check_length("text", text, service.limits.characters)
    check_length("metadata", metadata, service.limits.question_bytes)
    values = _parse_metadata(metadata)
    async with service.open_image(image) as (opened, content):
        outputs = {"image": await service.encode("image", opened)}
        if text is not None:
            values["text"] = text
            outputs["text"] = await service.encode("text", _check_text(text))

        def write() -> None:
            with service.noted(request, [id]):
                _write_image(service, id, outputs, values, content, replace)

        await run_sync(write)
    return WriteResponse(items=1)


@writers.delete("/items/{item_id:id}")
def delete_item(request: Request, item_id: str, service: CurrentService) -> WriteResponse:
    """Remove an item with all its codes."""
    service.get_item(item_id)
    with service.noted(request, [item_id]):
        deleted = service.store.delete([item_id])
        if service.image_folder is not None:
            image_copy(service.image_folder, item_id).unlink(missing_ok=True)
    return WriteResponse(items=deleted)


def image_copy(folder: Path, item_id: str) -> Path:
    """Return the path of the copy of an item's uploaded image; a request cannot choose any part of it.

    >>> image_copy(Path("pictures"), "../17").name[:8]
    '1c17bf64'
    """
    return folder / f"{hashlib.sha256(item_id.encode()).hexdigest()}.jpg"


def _write_image(
    service: Service, item_id: str, outputs: dict[str, Outputs], metadata: Metadata, content: bytes, replace: bool
) -> None:
    """Write the item, then the copy of its image."""
    encoded = {modality: _Encoded.of(rows) for modality, rows in outputs.items()}
    codes = {modality: part.code[None] for modality, part in encoded.items()}
    if service.image_folder is not None:
        metadata["image"] = str(image_copy(service.image_folder, item_id))
    write = service.store.upsert if replace else service.store.add
    write([item_id], codes, None, [metadata], _projections(service, [encoded]))
    if service.image_folder is not None:
        with atomic_path(image_copy(service.image_folder, item_id)) as temporary:
            temporary.write_bytes(service.thumbnails.draw_upload(content))


async def _encode_item(service: Service, item: NewItem) -> "dict[str, _Encoded]":
    """Return modality -> code of one new item."""
    encoded: dict[str, _Encoded] = {
        modality: _Encoded(np.frombuffer(bytes.fromhex(code), np.uint8)) for modality, code in item.codes.items()
    }
    if item.text is not None and "text" not in encoded:
        encoded["text"] = _Encoded.of(await service.encode("text", _check_text(item.text)))
    if not encoded:
        raise HTTPException(422, f"items: {item.id!r} has neither a text nor codes")
    return encoded


class _Encoded(NamedTuple):
    """A code ``(width,)``, and the outputs ``(n_bits,)`` of which it is the signs, unless it was sent."""

    code: PackedCodes
    outputs: Outputs | None = None

    @classmethod
    def of(cls, outputs: Outputs) -> "_Encoded":
        return cls(pack(binarize(outputs[None]))[0], outputs)


def _projections(service: Service, encoded: "list[dict[str, _Encoded]]") -> dict[str, Outputs] | None:
    """Return modality -> the outputs of all items, for a store that keeps them."""
    if not service.store.projected:
        return None
    rows: dict[str, list[Outputs]] = {modality: [] for modality in encoded[0]}
    for modality, part in (pair for parts in encoded for pair in parts.items()):
        if part.outputs is None:
            raise HTTPException(422, "codes: this store keeps projections beside its codes; send texts and pictures")
        rows[modality].append(part.outputs)
    return {modality: np.stack(outputs) for modality, outputs in rows.items()}


def _stack(codes: list[PackedCodes], modality: str) -> PackedCodes:
    if len({len(code) for code in codes}) > 1:
        raise HTTPException(422, f"items: {modality} codes of different lengths")
    return np.stack(codes)


def _check_text(text: str) -> str:
    if not text.strip():
        raise HTTPException(422, "text: is empty; give some words, or leave it out")
    return text


def _parse_metadata(text: str) -> Metadata:
    try:
        metadata = TypeAdapter(Metadata).validate_json(text)
    except ValidationError as error:
        first: Any = error.errors()[0]
        raise HTTPException(422, f"metadata: {first['msg']}") from None
    _check_metadata(metadata)
    return metadata


def _check_metadata(metadata: Metadata) -> None:
    """Refuse the path of an image, which would be opened later: only this server sets it."""
    if "image" in metadata:
        raise HTTPException(422, "metadata: image is set by the server; upload the picture to /items/image")
