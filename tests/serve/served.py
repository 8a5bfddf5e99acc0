"""A small store of pictures and texts with the model that made its codes, served in this
process.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from channelhash.search import Store, open_store
from channelhash.serve.access import Access
from channelhash.serve.app import create_app
from channelhash.serve.server import _server_config, format_address, listen
from channelhash.serve.service import Service
from extras import needs
from picture_runs import picture_records

if TYPE_CHECKING:
    from channelhash.models import HashModel

TOKEN = "a-token-of-some-length"
WRITER = {"Authorization": f"Bearer {TOKEN}"}
N_BITS = 12
#: Options of a server that its `Access` takes.
_ACCESS = ("token", "read_token", "hosts")
#: An id with everything that an address could take for something else.
ODD_ID = "../a b/ü?x=1&y#z\n'\""


def small_model(
    folder: Path, n: int = 30, n_bits: int = N_BITS, seed: int = 0, of_texts: bool = True
) -> "HashModel":
    """A model with random weights: as real as any, to a server."""
    needs("train")
    import torch

    from channelhash.models import MODELS

    torch.manual_seed(seed)
    records = picture_records(folder, n)
    if not of_texts:
        records = replace(records, items={"image": records.items["image"]})
    return MODELS["small"].create(records, n_bits, width=8, image_size=32, hidden=[16]).eval()


def small_store(folder: Path, model: "HashModel", n: int = 30) -> Store:
    """The pictures and texts of `picture_records`, and one item more, in a store in
    ``folder/store``.
    """
    records = picture_records(folder, n)
    images, texts = list(records.items["image"]), [str(text) for text in records.items["text"]]
    store = open_store(folder / "store", model.n_bits, model.fingerprint())
    colours = [[records.label_names[i] for i in row.nonzero()[0]] for row in records.labels]
    metadata: list[dict[str, Any]] = []
    for row, (image, text, labels) in enumerate(zip(images, texts, colours, strict=True), 2000):
        metadata.append({"image": str(image), "text": text, "labels": labels, "year": row})
    store.add(list(records.ids), model.encode_images(images), metadata=metadata)
    if "text" in model.modalities:
        store.add(list(records.ids), model.encode_texts(texts), "text")
        store.add(
            [ODD_ID],
            model.encode_texts(["a dark blue picture"]),
            "text",
            [{"text": "odd <b>&</b>"}],
        )
    return store


def store_of_copies(folder: Path) -> Store:
    """A picture, a smaller copy and a third picture in ``folder/photos``, in a store."""
    (folder / "photos").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (2, 5, 6, 3), dtype=np.uint8)
    one, other = (Image.fromarray(image).resize((180, 150)) for image in pixels)
    paths = {name: folder / "photos" / name for name in ("a.png", "b.png", "small.png")}
    for path, image in zip(paths.values(), (one, other, one.resize((90, 75))), strict=True):
        image.save(path)
    store = open_store(folder / "store", 8)
    store.add(
        list(paths),
        np.zeros((3, 1), np.uint8),
        metadata=[{"image": str(path)} for path in paths.values()],
    )
    return store


def app_of(store: Store, model: "HashModel | None" = None, **options: Any) -> FastAPI:
    """The application over a store, with a model that is loaded."""
    access = Access(**{name: options.pop(name) for name in _ACCESS if name in options})
    service = Service(store, lambda: model, access=access, **options)
    service.encoding.result()
    return create_app(service)


@contextmanager
def serving(folder: Path, model: "HashModel | None" = None, **options: Any) -> Iterator[TestClient]:
    """A client of an application over `small_store`, which takes writes unless ``token`` is
    None.
    """
    model = model or small_model(folder)
    store = small_store(folder, model)
    usual = {"token": TOKEN, "hosts": {"testserver", "127.0.0.1", "localhost"}}
    usual["image_folder"] = folder / "store" / "pictures"
    with TestClient(
        app_of(store, model, **usual | options), raise_server_exceptions=False
    ) as client:
        client.app_store = store  # type: ignore[attr-defined]
        yield client


@contextmanager
def on_loopback(app: FastAPI, lifespan: str = "on", address: str = "127.0.0.1") -> Iterator[str]:
    """The application behind a real socket, from a thread; its address. One that has begun needs no
    ``lifespan``.
    """
    with listen(address, 0) as listening:
        config = _server_config(app)
        config.lifespan = lifespan
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield format_address(listening)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def started(
    *arguments: object, log: Any = subprocess.PIPE, **options: Any
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``channelhash serve`` as a process of its own that answers, and its address; ``options`` are
    those of `subprocess.Popen`.
    """
    command = [sys.executable, "-m", "channelhash", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, **options)
    try:
        match = re.search(r"at (http://\S+/)", process.stdout.readline())
        assert match, f"{arguments} ended with {process.wait(60)}"
        yield process, match[1]
    finally:
        process.kill()
        process.communicate()


def model_and_token(folder: Path, model: "HashModel") -> tuple[object, ...]:
    """Options that name the model and the token, which this writes into the folder."""
    model.save_pretrained(folder / "model")
    (folder / "token").write_text(f"{TOKEN}\n")
    return "--model", folder / "model", "--token-file", folder / "token"


def refused(answer: Any, *statuses: int, says: str = "") -> None:
    """A refusal in one line of JSON."""
    assert (answer.status_code in statuses, list(answer.json())) == (True, ["error"]), answer.text
    assert says in answer.json()["error"]
    assert "\n" not in answer.json()["error"]
    assert "Traceback" not in answer.text
