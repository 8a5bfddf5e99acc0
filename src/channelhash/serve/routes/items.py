"""``/items``: what is stored, and adding to it; ``/images``: its pictures."""

import asyncio
import hashlib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, File, Form, HTTPException, Query, Response, UploadFile
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.serve.auth import check_token
from channelhash.serve.error_handlers import PROBLEMS, WRITE_PROBLEMS
from channelhash.serve.limits import at_most, not_longer
from channelhash.serve.responses import shown_item
from channelhash.serve.schemas import ItemAnswer, Metadata, NewItem, NewItems, Written
from channelhash.serve.service import Service, Shared
from channelhash.serve.thumbnails import LARGEST
from channelhash.utils.files import atomic_path


class _AnyText(Convertor[str]):
    """An id in an address: any characters, also ``/`` and line breaks."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("id", _AnyText())
_bearer = HTTPBearer(auto_error=False, description="The token in the file of --token-file.")


def _writer(service: Shared, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Service:
    """The service, for those who may write."""
    if not service.store.writable:
        raise HTTPException(403, "this store can only be read: make one to write to with `channelhash index create`")
    check_token(service.token, credentials.credentials if credentials else None)
    return service


Writer = Annotated[Service, Depends(_writer)]
readers = APIRouter(tags=["items"], responses=PROBLEMS)
writers = APIRouter(tags=["items"], responses=WRITE_PROBLEMS)


@readers.get("/items/{item_id:id}")
def get_item(item_id: str, service: Shared) -> ItemAnswer:
    """One item: its codes and what is known of it. Percent-encode the id, also slashes."""
    return shown_item(service.item(item_id))


@readers.get(
    "/images/{item_id:id}",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {}}, "description": "A JPEG file."}},
)
def get_image(
    item_id: str, service: Shared, size: Annotated[int, Query(ge=16, le=LARGEST, description="Long side.")] = 256
) -> Response:
    """The thumbnail of a stored item's picture."""
    path = service.item(item_id).metadata.get("image")
    if not isinstance(path, str) or not path:
        raise HTTPException(404, "this item has no picture")
    content = service.thumbnails.jpeg(Path(path), size)
    return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=300"})


@writers.post("/items", status_code=201)
async def add_items(new: NewItems, service: Writer) -> Written:
    """Add items, all of them or none: texts are encoded here, codes are taken as they are."""
    at_most("items", len(new.items), service.limits.items)
    for item in new.items:
        not_longer("text", item.text, service.limits.characters)
        _check_metadata(item.metadata)
    encoded = await asyncio.gather(*[_codes(service, item) for item in new.items])
    modalities = sorted(encoded[0])
    for item, codes in zip(new.items, encoded, strict=True):
        if sorted(codes) != modalities:
            raise HTTPException(
                422,
                f"items: {new.items[0].id!r} has codes of {' and '.join(modalities)}, {item.id!r} of "
                f"{' and '.join(sorted(codes))}; send such items in requests of their own",
            )
    packed = {modality: _stacked([codes[modality] for codes in encoded], modality) for modality in modalities}
    metadata = [item.metadata | ({} if item.text is None else {"text": item.text}) for item in new.items]
    write = service.store.upsert if new.replace else service.store.add
    await run_in_threadpool(write, [item.id for item in new.items], packed, None, metadata)
    return Written(items=len(new.items))


@writers.post("/items/image", status_code=201)
async def add_picture(
    service: Writer,
    id: Annotated[str, Form(min_length=1)],
    image: Annotated[UploadFile, File(description="A picture: JPEG, PNG, WebP, GIF, BMP or TIFF.")],
    text: Annotated[str | None, Form(description="Encoded as well, and shown.")] = None,
    metadata: Annotated[str, Form(description='A JSON object, such as {"labels": ["dog"], "year": 2020}.')] = "{}",
    replace: Annotated[bool, Form(description="Replace the codes that the item has already.")] = False,
) -> Written:
    """Add one item by its picture, and a text if there is one. A small copy of the picture is kept to be shown."""
    not_longer("text", text, service.limits.characters)
    known = _parsed_metadata(metadata)
    picture, content = await service.open_picture(image)
    outputs = {"image": await service.encode("image", picture)}
    if text is not None:
        known["text"] = text
        outputs["text"] = await service.encode("text", _nonempty(text))
    codes = {modality: pack(binarize(rows[None])) for modality, rows in outputs.items()}
    if service.pictures is not None:
        known["image"] = str(kept_picture(service.pictures, id))
    await run_in_threadpool(_write_picture, service, id, codes, known, content, replace)
    return Written(items=1)


@writers.delete("/items/{item_id:id}")
def delete_item(item_id: str, service: Writer) -> Written:
    """Remove an item with all its codes."""
    service.item(item_id)
    deleted = service.store.delete([item_id])
    if service.pictures is not None:
        kept_picture(service.pictures, item_id).unlink(missing_ok=True)
    return Written(items=deleted)


def kept_picture(folder: Path, item_id: str) -> Path:
    """Where the copy of an item's uploaded picture lies; the name says nothing that a request could choose."""
    return folder / f"{hashlib.sha256(item_id.encode()).hexdigest()}.jpg"


def _write_picture(
    service: Service, item_id: str, codes: dict[str, PackedCodes], known: Metadata, content: bytes, replace: bool
) -> None:
    """The item, then the copy of its picture."""
    write = service.store.upsert if replace else service.store.add
    write([item_id], codes, None, [known])
    if service.pictures is not None:
        with atomic_path(kept_picture(service.pictures, item_id)) as temporary:
            temporary.write_bytes(service.thumbnails.drawn(content))


async def _codes(service: Service, item: NewItem) -> dict[str, PackedCodes]:
    """Modality -> code ``(width,)`` of one new item."""
    codes: dict[str, PackedCodes] = {
        modality: np.frombuffer(bytes.fromhex(code), np.uint8) for modality, code in item.codes.items()
    }
    if item.text is not None and "text" not in codes:
        codes["text"] = pack(binarize((await service.encode("text", _nonempty(item.text)))[None]))[0]
    if not codes:
        raise HTTPException(422, f"items: {item.id!r} has neither a text nor codes")
    return codes


def _stacked(codes: list[PackedCodes], modality: str) -> PackedCodes:
    if len({len(code) for code in codes}) > 1:
        raise HTTPException(422, f"items: {modality} codes of different lengths")
    return np.stack(codes)


def _nonempty(text: str) -> str:
    if not text.strip():
        raise HTTPException(422, "text: is empty; give some words, or leave it out")
    return text


def _parsed_metadata(text: str) -> Metadata:
    try:
        metadata = TypeAdapter(Metadata).validate_json(text)
    except ValidationError as error:
        first: Any = error.errors()[0]
        raise HTTPException(422, f"metadata: {first['msg']}") from None
    _check_metadata(metadata)
    return metadata


def _check_metadata(metadata: Metadata) -> None:
    """A picture's path would be opened later: only this server sets it."""
    if "image" in metadata:
        raise HTTPException(422, "metadata: image is set by the server; upload the picture to /items/image")
