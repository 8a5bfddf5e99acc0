"""Inputs of bulk encoding, and models small enough for a test."""

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from channelhash.data.records import Records
from channelhash.models import MODELS
from picture_runs import WORDS

N = 40
WIDTHS = {"image": 6, "text": 4}


def feature_rows(n: int = N) -> dict[str, np.ndarray]:
    draws = (
        np.random.default_rng(i).normal(size=(n, width)) for i, width in enumerate(WIDTHS.values())
    )
    return dict(zip(WIDTHS, (rows.astype(np.float32) for rows in draws), strict=True))


def feature_model(folder: Path, n_bits: int = 12, seed: int = 0) -> Path:
    """A saved model that takes `feature_rows`."""
    records = Records(
        tuple(map(str, range(N))), feature_rows(), np.ones((N, 1), dtype=bool), ("x",)
    )
    torch.manual_seed(seed)
    MODELS["features"].create(records, n_bits, hidden=[8]).save_pretrained(folder)
    return folder


def picture_model(
    folder: Path, modalities: tuple[str, ...] = ("image", "text"), n_bits: int = 12
) -> Path:
    """A saved model that takes pictures and texts of `picture_runs.WORDS`."""
    items = {"image": (Path("none.png"),), "text": (" ".join(WORDS * 2),)}
    records = Records(
        ("0",), {name: items[name] for name in modalities}, np.ones((1, 1), dtype=bool), ("x",)
    )
    torch.manual_seed(0)
    MODELS["small"].create(records, n_bits, image_size=16, width=8, hidden=[8]).save_pretrained(
        folder
    )
    return folder


def write_feature_parquet(path: Path, n: int = N, row_group: int = 8, name: str = "item") -> Path:
    """Features of both modalities, and labels, in row groups."""
    rows = feature_rows(n)
    columns = {
        key: pa.FixedSizeListArray.from_arrays(pa.array(rows[key].ravel()), WIDTHS[key])
        for key in rows
    }
    labels = [["even", "all"] if i % 2 == 0 else ["all"] for i in range(n)]
    table = pa.table({"id": [f"{name}{i:03d}" for i in range(n)], **columns, "labels": labels})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group)
    return path


def write_members(path: Path, members: Mapping[str, bytes | tuple[bytes, str]]) -> Path:
    """A tar file: name -> content, or the type and the target of a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                member.type, member.linkname = content
                content = b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write_tar(path: Path, items: Mapping[str, Mapping[str, bytes]]) -> Path:
    """A webdataset shard: name -> ending -> content."""
    parts = [
        (f"{name}.{ending}", content)
        for name, endings in items.items()
        for ending, content in endings.items()
    ]
    return write_members(path, dict(parts))


def picture_items(table: Path) -> dict[str, dict[str, bytes]]:
    """The rows of `picture_runs.write_pictures` as items of a webdataset shard."""
    items = {}
    for line in table.read_text().splitlines()[1:]:
        name, image, text, label = line.split(",")
        fields = json.dumps({"labels": [label], "source": "drawn"}).encode()
        items[name] = {
            "png": (table.parent / image).read_bytes(),
            "txt": text.encode(),
            "json": fields,
        }
    return items
