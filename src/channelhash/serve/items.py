"""Items: ``/items`` and ``/facets`` read, browse, add and delete them, ``/images`` and
``/originals`` are their images.

``/reveal`` says where an image lies and shows it in its folder, only to the person at this machine.
``/duplicates`` are groups of near-duplicates, and decisions about them.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, File, HTTPException, Query, Request, Response
from numpy.typing import NDArray
from PIL import Image
from starlette.convertors import PathConvertor, register_url_convertor

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.duplicates import decide, find_duplicates, folder_of, move_rest, undo_last
from channelhash.errors import InputError
from channelhash.search.hits import Hit
from channelhash.serve import fields, item_schemas
from channelhash.serve.images import FileParts
from channelhash.serve.routing import (
    PROBLEMS,
    WRITE_PROBLEMS,
    DecisionRoute,
    Route,
    WriteRoute,
    content_tag,
)
from channelhash.serve.service import CurrentService, Service
from channelhash.utils.files import atomic_path
from channelhash.utils.image_files import open_image


class _AnyText(PathConvertor):
    """An id in an address: any characters, including ``/`` and line breaks."""

    regex = r"[\s\S]+"


register_url_convertor("id", _AnyText())
#: Largest long side of a thumbnail, in pixels.
_MAX_SIDE = 1280
#: Images change seldom; a browser keeps them for five minutes.
_CACHED = {"Cache-Control": "private, max-age=300"}
_FILE = {"schema": {"type": "string", "format": "binary"}}
_UNCHANGED = {"description": "The client has it already, as its header If-None-Match says."}
#: Seconds that a program has to fail; one that runs longer is the window.
_SECONDS = 3
#: The file manager on a Linux desktop, as D-Bus knows it.
_MANAGER = "org.freedesktop.FileManager1"
#: Modality -> the model's outputs ``(n_bits,)`` for an item, or the packed code that was sent.
_Encoded = dict[str, NDArray[Any]]
readers = APIRouter(responses=PROBLEMS, route_class=Route)
writers = APIRouter(responses=WRITE_PROBLEMS, route_class=WriteRoute)
deciders = APIRouter(responses=WRITE_PROBLEMS, route_class=DecisionRoute)


@readers.get("/items", tags=["items"])
async def _browse(
    options: Annotated[item_schemas.BrowseOptions, Query()], service: CurrentService
) -> item_schemas.BrowsedItems:
    """Return some of the items in an order. Over all offsets each item comes once, as long as
    nothing is written.
    """

    def work() -> item_schemas.BrowsedItems:
        part = slice(options.offset, options.offset + options.limit)
        total, items = service.browser.read(
            options.filter_of(service.store), options.order, options.seed, part
        )
        return item_schemas.BrowsedItems.of([Hit.of(item) for item in items], total, options.offset)

    return await run_sync(work, limiter=service.searching)


@readers.get("/facets", tags=["items"])
async def _facets(service: CurrentService) -> item_schemas.Facets:
    """Return the labels, folders, months, cameras and places of all items, and how many items have
    each.
    """

    def work() -> item_schemas.Facets:
        catalogue = service.browser.catalogue()
        store = service.store
        return item_schemas.Facets(
            labels=item_schemas.Facet.list_of(store.label_counts()),
            folders=item_schemas.Facet.list_of(catalogue.folders),
            months=item_schemas.Facet.list_of(catalogue.months),
            cameras=item_schemas.Facet.list_of(store.value_counts("camera")),
            places=item_schemas.Facet.list_of(store.value_counts("place")),
        )

    return await run_sync(work, limiter=service.searching)


@readers.get("/items/{item_id:id}", tags=["items"])
def _get_item(item_id: str, service: CurrentService) -> item_schemas.ItemResponse:
    """Return one item, its codes and metadata. Percent-encode the id, with its slashes."""
    item = service.get_item(item_id)
    codes = {name: code.tobytes().hex() for name, code in item.codes.items()}
    return item_schemas.ItemResponse.of(Hit.of(item), codes=codes)


@readers.get(
    "/images/{item_id:id}",
    tags=["items"],
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": _FILE}, "description": "A JPEG file."},
        304: _UNCHANGED,
    },
)
async def _get_image(
    item_id: str,
    service: CurrentService,
    size: Annotated[int, Query(ge=16, le=_MAX_SIDE, description="Long side.")] = 256,
) -> Response:
    """Return the thumbnail of a stored item's image."""

    def draw() -> Response:
        path = service.get_item(item_id).metadata.get("image")
        if not isinstance(path, str) or not path:
            raise HTTPException(404, "this item has no picture")
        content, changed = service.thumbnails.jpeg(Path(path), size)
        headers = {
            **_CACHED,
            "ETag": content_tag(content),
            "Last-Modified": formatdate(changed, usegmt=True),
        }
        return Response(content, media_type="image/jpeg", headers=headers)

    return await run_sync(draw, limiter=service.drawing)


@readers.get(
    "/originals/{item_id:id}",
    tags=["items"],
    response_class=Response,
    responses={
        200: {"content": {"image/*": _FILE}, "description": "The file as it is stored."},
        304: _UNCHANGED,
    },
)
def _get_original(item_id: str, service: CurrentService) -> Response:
    """Return the file of a stored item's image, with all that its camera wrote into it; the preview
    of a raw file.
    """
    path = service.get_item(item_id).metadata.get("image")
    try:
        status = os.stat(str(path or ""))
        with open_image(str(path)) as opened:
            # Browsers show the first image of an MPO file, which is a JPEG file.
            name = "JPEG" if opened.format == "MPO" else opened.format or ""
            media_type = Image.MIME.get(name, "application/octet-stream")
            is_raw = opened.format == "RAW"
    except OSError:
        raise HTTPException(
            404, "this item has no picture, or it cannot be read any more"
        ) from None
    if is_raw:  # no browser shows it
        return Response(
            service.thumbnails.jpeg(Path(str(path)))[0], media_type="image/jpeg", headers=_CACHED
        )
    return FileParts(str(path), media_type=media_type, headers=_CACHED, stat_result=status)


@readers.post("/reveal", tags=["items"], responses={403: WRITE_PROBLEMS[403]})
def _reveal(item: item_schemas.Reveal, request: Request, service: CurrentService) -> dict[str, str]:
    """Return where the image of an item lies, and show it there if asked to. Only the page of this
    server, on the server's machine, is answered.
    """
    if not service.access.is_own_page(request):
        raise HTTPException(
            403, "where files lie is only told to the page of this server, on its own machine"
        )
    path = Path(str(service.get_item(item.id).metadata.get("image") or "")).absolute()
    if not path.is_file():
        raise HTTPException(404, "the picture of this item is not there any more")
    if item.show:
        _show_in_folder(path)
    return {"path": str(path)}


def _show_in_folder(path: Path) -> None:
    """Open the folder of a file in the file manager of this system, which selects the file if it
    can.
    """
    ask = ["dbus-send", "--print-reply", f"--dest={_MANAGER}", f"/{_MANAGER.replace('.', '/')}"]
    commands = [[*ask, f"{_MANAGER}.ShowItems", f"array:string:{path.as_uri()}", "string:"]]
    commands.append(["xdg-open", str(path.parent)])
    others = {"darwin": [["open", "-R", str(path)]], "win32": [["explorer", "/select,", str(path)]]}
    if not any(map(_runs, others.get(sys.platform, commands))):
        raise InputError("this machine has no file manager that could be opened")


def _runs(command: list[str]) -> bool:
    """Start a program without a shell, and return whether it works, as far as that shows soon."""
    no = subprocess.DEVNULL
    try:  # in a session of its own, which Ctrl-C in the server's terminal does not end
        status = subprocess.Popen(
            command, stdin=no, stdout=no, stderr=no, start_new_session=True
        ).wait(_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False
    return status == 0 or sys.platform == "win32"  # where explorer always returns 1


@writers.post("/items", tags=["items"], status_code=201)
async def _add_items(
    new: item_schemas.NewItems, service: CurrentService
) -> item_schemas.WriteResponse:
    """Add items, all of them or none. Texts are encoded here, codes are stored as they are."""
    encoded = await asyncio.gather(*[_encode_item(service, item) for item in new.items])
    for item, codes in zip(new.items, encoded, strict=True):
        if codes.keys() != encoded[0].keys():
            first, other = (" and ".join(sorted(each)) for each in (encoded[0], codes))
            line = f"items: {new.items[0].id!r} has codes of {first}, {item.id!r} of {other}"
            raise HTTPException(422, f"{line}; send such items in requests of their own")
    metadata = [
        item.metadata | ({} if item.text is None else {"text": item.text}) for item in new.items
    ]
    ids = [item.id for item in new.items]

    await run_sync(_write, service, ids, encoded, metadata, new.replace)
    return item_schemas.WriteResponse(items=len(ids))


@writers.post("/items/image", tags=["items"], status_code=201)
async def _add_image(
    service: CurrentService, new: Annotated[item_schemas.NewImage, File()]
) -> item_schemas.WriteResponse:
    """Add one item by its image, and a text if there is one. A small copy of the image is kept, to
    be shown.
    """
    metadata = dict(new.metadata)
    folder = service.image_folder
    async with service.uploads.open(new.image) as (opened, content):
        encoded: _Encoded = {"image": await service.encode("image", opened)}
        if new.text is not None:
            metadata["text"] = new.text
            encoded["text"] = await service.encode("text", new.text)
        if folder is not None:
            metadata["image"] = str(_image_copy(folder, new.id))

        def write() -> None:
            _write(service, [new.id], [encoded], [metadata], new.replace)
            if folder is not None:
                with atomic_path(_image_copy(folder, new.id)) as temporary:
                    temporary.write_bytes(service.thumbnails.draw_upload(content))

        await run_sync(write)
    return item_schemas.WriteResponse(items=1)


@writers.delete("/items/{item_id:id}", tags=["items"])
def _delete_item(item_id: str, service: CurrentService) -> item_schemas.WriteResponse:
    """Remove an item with all its codes."""
    service.get_item(item_id)
    deleted = service.store.delete([item_id])
    if service.image_folder is not None:
        _image_copy(service.image_folder, item_id).unlink(missing_ok=True)
    return item_schemas.WriteResponse(items=deleted)


def _image_copy(folder: Path, item_id: str) -> Path:
    """Return the path of the copy of an item's uploaded image, of which a request cannot choose any
    part.

    >>> _image_copy(Path("pictures"), "../17").name[:8]
    '1c17bf64'
    """
    return folder / f"{hashlib.sha256(item_id.encode()).hexdigest()}.jpg"


async def _encode_item(service: Service, item: item_schemas.NewItem) -> _Encoded:
    encoded: _Encoded = {
        name: np.frombuffer(bytes.fromhex(code), np.uint8) for name, code in item.codes.items()
    }
    if item.text is not None and "text" not in encoded:
        encoded["text"] = await service.encode("text", item.text)
    return encoded


def _write(
    service: Service,
    ids: list[str],
    encoded: list[_Encoded],
    metadata: list[dict[str, Any]],
    replace: bool,
) -> None:
    """Write items that have codes of the same modalities. A store that keeps projections gets the
    outputs, too.
    """
    packed: _Encoded = {}
    projections: _Encoded = {}
    for modality in encoded[0]:
        rows = [item[modality] for item in encoded]
        packed[modality] = _pack_rows(rows, modality, service.store.n_bits)
        if service.store.projected:
            if any(row.dtype == np.uint8 for row in rows):
                raise InputError(
                    "codes: this store keeps projections beside its codes; send texts and pictures"
                )
            projections[modality] = np.stack(rows)
    write = service.store.upsert if replace else service.store.add
    write(ids, packed, None, metadata, projections or None)


def _pack_rows(rows: list[NDArray[Any]], modality: str, n_bits: int | None) -> PackedCodes:
    """Return the codes of one modality: those of outputs, and those that were sent."""
    codes = []
    for row in rows:
        codes.append(row if row.dtype == np.uint8 else pack(binarize(row[None, :n_bits]))[0])
    if len(set(map(len, codes))) > 1:
        raise InputError(f"items: {modality} codes of different lengths")
    return np.stack(codes)


@readers.get("/duplicates", tags=["duplicates"])
async def _find(
    service: CurrentService,
    radius: Annotated[
        int | None, Query(ge=0, description="Codes within this many bits are near.")
    ] = None,
    modality: Annotated[
        fields.Modality | None, Query(description="Modality of the codes; image if any.")
    ] = None,
    where: Annotated[
        fields.Text | None, Query(description="Filter: label = 'dog' AND year > 2015.")
    ] = None,
    pictures: Annotated[
        bool, Query(description="Compare images, too; if false, near codes are enough.")
    ] = True,
    k: Annotated[fields.PageSize, Query(description="Number of groups, at most.")] = 100,
) -> item_schemas.DuplicatesResponse:
    """Return groups of items whose images are all alike, or, where there are none to compare, whose
    codes are near.
    """
    start = time.perf_counter()

    def work() -> item_schemas.DuplicatesResponse:
        store = service.store
        groups = find_duplicates(store, radius, modality, where or None, pictures)
        default = store.choose_modality() if store.modalities else "image"
        return item_schemas.DuplicatesResponse.of(
            groups[:k],
            found=len(groups),
            bytes=sum(group.spare_bytes for group in groups),
            modality=modality or default,
            radius=radius,
            seconds=time.perf_counter() - start,
        )

    return await run_sync(work, limiter=service.grouping)


@deciders.post("/duplicates/decisions", tags=["duplicates"], status_code=201)
async def _decide(
    new: item_schemas.NewDecision, service: CurrentService
) -> item_schemas.WriteResponse:
    """Remember that items are different, or that all of them stay. Their group is returned again
    only if another item joins it.
    """
    await run_sync(decide, service.store, new.kind, new.ids, limiter=service.grouping)
    return item_schemas.WriteResponse(items=len(new.ids))


@deciders.post("/duplicates/move", tags=["duplicates"])
async def _move(new: item_schemas.NewMove, service: CurrentService) -> item_schemas.Decided:
    """Move the files of copies to a folder beside that of all images, and take them out of the
    store.
    """

    def work() -> item_schemas.Decided:
        # A request cannot choose any part of the folder.
        home = folder_of(service.get_item(new.keeper))
        if not home.name:
            raise HTTPException(
                422,
                "keeper: is of no folder of pictures; `channelhash duplicates --move` takes any",
            )
        folder = home.with_name(f"{home.name} duplicates")
        moved = move_rest(service.store, {new.keeper: new.ids}, folder, new.dry_run)
        return item_schemas.Decided(
            kind="move", ids=list(moved.paths), problems=moved.problems, folder=folder.name
        )

    return await run_sync(work, limiter=service.grouping)


@deciders.post("/duplicates/undo", tags=["duplicates"])
async def _undo(service: CurrentService) -> item_schemas.Decided:
    """Undo the last decision or move."""
    undone = await run_sync(undo_last, service.store, limiter=service.grouping)
    if undone is None:
        raise HTTPException(404, "there is no decision to take back")
    return item_schemas.Decided(kind=undone.kind, ids=list(undone.paths), problems=undone.problems)
