"""Damage files and values at random, as bytes and within their formats, so that a reader gets past the first line."""

import contextlib
import io
import json
import random
import re
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

#: Pieces of text that readers stumble over.
PIECES = """
1e308 -1 0 nan inf 1e999 99999999999999999999 0x1f 1_000 1:30 2020-01-01 2020-13-45 null true ~ [] {} [ ] { } ( ) : - ,
!!python/object:os.system !!binary &a *a --- ... ; | > ' " \\ / .. % # {0} %s \\ud800 \\u0000 é 漢 😀 id labels image
text ٣ ² ½ NaN Infinity -0
""".split()  # noqa: SIM905
PIECES += ["\x00", "\t", "\u2028", "\ufeff", "\r\n", "\n", "", " "]
PIECES += ["9" * 5000, "[" * 20000, "{" * 500, "a" * 70000, '{"a":' * 20000]

#: Values of the wrong kind for JSON and YAML.
VALUES: list[Any] = [None, True, [], {}, "", "x", "é\x00", 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 1.5, 1e308, [[]]]
VALUES += [
    float("nan"),
    float("inf"),
    -float("inf"),
    "9" * 5000,
    "\ud800",
    ["a", 1],
    {"a": None},
    [None],
    "1e308",
    "-1",
]


def mutate(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Change one file in place; ``others`` are files of other kinds that may take its place."""
    if rng.random() < 0.03 and others:
        path.write_bytes(rng.choice(others).read_bytes())
        return
    before = path.read_bytes()
    inside = INSIDE.get(path.suffix.lower())
    if inside and rng.random() < 0.6:
        try:
            inside(path, rng)
            return
        except Exception:  # what was damaged before may not be readable here either
            path.write_bytes(before)
    change = change_text if rng.random() < 0.5 and _is_text(path) else change_bytes
    path.write_bytes(change(before, rng))


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with bits flipped, pieces removed, repeated, moved or overwritten."""
    size = len(data)
    at = rng.randrange(size) if size else 0
    long = min(size - at, 2 ** rng.randrange(12))
    part = data[at : at + long]
    kind = rng.randrange(12)
    if kind < 4:
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
            if size:
                changed[rng.randrange(size)] ^= 1 << rng.randrange(8)
        return bytes(changed)
    fill = rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80"))
    return (
        data[:at] + rng.randbytes(rng.randrange(1, 40)) + data[at:],
        data[:at] + data[at + long :],
        data[: at + long] + part * rng.choice((1, 1, 30)) + data[at + long :],
        data[:at],
        rng.choice((b"", b"\x00" * size, b"\n", b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), data + b"\xff")),
        data[:at] + fill * long + data[at + long :],
        data[:at]
        + rng.choice((1, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**63)).to_bytes(8, rng.choice(("little", "big")))
        + data[at + 8 :],
        data[:at] + rng.choice((b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\x80")) + data[at + 1 :],
    )[kind - 4]


def change_text(data: bytes, rng: random.Random) -> bytes:
    """Return text with words and numbers replaced, doubled, or joined by odd pieces."""
    parts = re.split(rb"([\w.+-]+)", data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(parts))
        piece = rng.choice(PIECES).encode("utf-8", "surrogatepass")
        kind = rng.randrange(4)
        parts[place] = (piece, parts[place] + piece, b"", parts[rng.randrange(len(parts))])[kind]
    return b"".join(parts)


def change_value(value: Any, rng: random.Random) -> Any:
    """Return a nested value with one part replaced, removed, repeated or wrapped."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        kind = rng.randrange(8)
        if kind == 0:
            return {name: part for name, part in value.items() if name != key}
        if kind == 1:
            return {**value, rng.choice((*PIECES[:20], str(key) + "x")): rng.choice(VALUES)}
        return {**value, key: change_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        kind = rng.randrange(6)
        if kind == 0:
            return value[:place] + value[place + 1 :]
        if kind == 1:
            return [*value, value[place]]
        return [*value[:place], change_value(value[place], rng), *value[place + 1 :]]
    return rng.choice((*VALUES, [value], {"a": value}, str(value)))


def change_arrays(arrays: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return named arrays with one of them of another shape, type or content, or missing."""
    import numpy as np

    name = rng.choice(list(arrays))
    array = np.asarray(arrays[name])
    odd: list[Callable[[], Any]] = [
        lambda: np.array(rng.choice((0, -1, 1e308, float("nan"), "x"))),
        lambda: np.empty((0, *array.shape[1:]), array.dtype),
        lambda: array.ravel(),
        lambda: array[None],
        lambda: array[:-1],
        lambda: array[..., :-1],
        lambda: array.T,
        lambda: array.astype(rng.choice(("float16", "int64", "complex64", "uint8", "bool", "U3", "S2", "float64"))),
        lambda: np.full(array.shape, rng.choice((float("nan"), float("inf"), 1e308, -1e308))),
        lambda: np.full(array.shape, rng.choice((-(2**63), 2**63 - 1, -1))),
        lambda: array.astype("datetime64[s]"),
        lambda: np.zeros(array.shape, [("a", "i4"), ("b", "f8")]),
        lambda: np.zeros((len(array), 0)),
        lambda: np.array([b"\xff\xfe", b"a"]),
    ]
    changed = dict(arrays)
    if rng.random() < 0.1:
        changed[rng.choice(("", "a/b", "é", "__x", name + "2"))] = changed.pop(name)
    else:
        changed[name] = rng.choice(odd)()
    return changed


def _is_text(path: Path) -> bool:
    return path.suffix.lower() in (".csv", ".tsv", ".jsonl", ".json", ".yaml", ".txt", ".vec", ".html", ".md", ".value")


def _in_json(path: Path, rng: random.Random) -> None:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    place = rng.randrange(len(lines))
    lines[place] = json.dumps(change_value(json.loads(lines[place]), rng))
    path.write_text("\n".join(lines))


def _in_yaml(path: Path, rng: random.Random) -> None:
    path.write_text(yaml.safe_dump(change_value(yaml.safe_load(path.read_text()), rng)))


def _in_npz(path: Path, rng: random.Random) -> None:
    import numpy as np

    if rng.random() < 0.6:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        np.savez(path, **change_arrays(arrays, rng))
        return
    with zipfile.ZipFile(path) as archive:  # damaged below the checksums of the archive
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    members[name] = change_bytes(members[name][:128], rng) + members[name][128:]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _in_npy(path: Path, rng: random.Random) -> None:
    import numpy as np

    np.save(path, change_arrays({"a": np.load(path)}, rng).popitem()[1])


def _in_tar(path: Path, rng: random.Random) -> None:
    with tarfile.open(path) as archive:
        members = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    name = rng.choice(list(members))
    content = members.pop(name)
    if name.endswith(".json") and rng.random() < 0.7:
        content = json.dumps(change_value(json.loads(content), rng)).encode()
    elif rng.random() < 0.3:
        name = rng.choice((name + ".json", "a.json", "../" + name, "é\udcff.txt", "/x.jpg", "0" * 300 + ".txt", ".txt"))
    else:
        content = rng.choice((change_bytes, change_text))(content, rng)
    members[name] = content
    with tarfile.open(path, "w") as archive:
        for name, content in sorted(members.items()):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def _in_parquet(path: Path, rng: random.Random) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    place = rng.randrange(table.num_columns)
    n = table.num_rows
    bad = pa.Array.from_buffers(
        pa.string(),
        n,
        [
            None,
            pa.py_buffer(memoryview(bytearray(b"".join((2 * i).to_bytes(4, "little") for i in range(n + 1))))),
            pa.py_buffer(b"\xff\xfe" * n),
        ],
    )
    facts = dict(table.schema.metadata or {})
    columns: list[Callable[[], Any]] = [
        lambda: bad,
        lambda: pa.nulls(n),
        lambda: pa.nulls(n, pa.string()),
        lambda: pa.array([[None, 1.5]] * n),
        lambda: pa.array([[float("nan"), 2.0]] * n),
        lambda: pa.array([{"bytes": None, "a": 1}] * n),
        lambda: pa.array([[["a"]]] * n),
        lambda: pa.array([2**63 - 1] * n),
        lambda: pa.array([b"\xff"] * n),
        lambda: pa.array([10**17] * n, pa.timestamp("s")),
        lambda: pa.array([-(2**62)] * n, pa.timestamp("us", "Nowhere/Zone")),
        lambda: pa.array([2**62] * n, pa.duration("ns")),
        lambda: pa.array([True] * n),
        lambda: table.column(place).dictionary_encode(),
        lambda: pa.array([["a", None]] * n).dictionary_encode() if rng.random() < 0.1 else pa.array([["a", None]] * n),
    ]
    if facts and rng.random() < 0.4:
        key = rng.choice(list(facts))
        changed = rng.choice((change_bytes, change_text))(facts[key], rng)
        if facts[key][:1] == b"{" and rng.random() < 0.6:
            changed = json.dumps(change_value(json.loads(facts[key]), rng)).encode()
        table = table.replace_schema_metadata({**facts, key: changed})
    elif rng.random() < 0.2:
        names = list(table.column_names)
        names[place] = rng.choice((*PIECES[:30], names[place] + "x", "id", "code_", "code_image", "labels"))
        table = table.rename_columns(names)
    elif rng.random() < 0.1:
        table = table.slice(0, 0)
    else:
        table = table.set_column(place, table.column_names[place], rng.choice(columns)())
    pq.write_table(table, path)


def _in_safetensors(path: Path, rng: random.Random) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    data = path.read_bytes()
    if rng.random() < 0.5:
        size = int.from_bytes(data[:8], "little")
        header = json.dumps(change_value(json.loads(data[8 : 8 + size]), rng)).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])
        return
    weights = load_file(path)
    name = rng.choice(list(weights))
    odd = (float("nan"), float("inf"), 1e38)
    kinds = (torch.float16, torch.int64, torch.bool, torch.bfloat16, torch.complex64, torch.uint8)
    weights[name] = rng.choice(
        (
            lambda: torch.full_like(weights[name], rng.choice(odd)),
            lambda: weights[name].to(rng.choice(kinds)),
            lambda: weights[name][None],
            lambda: weights[name].flatten()[:-1].clone(),
            lambda: torch.zeros(0),
        )
    )()
    if rng.random() < 0.2:
        del weights[name]
    save_file(weights, path)


def _in_hdf5(path: Path, rng: random.Random) -> None:
    import h5py
    import numpy as np

    with h5py.File(path, "r+") as file:
        name = rng.choice([key for key in file if isinstance(file[key], h5py.Dataset)])
        kind = rng.randrange(8)
        array = file[name][()]
        del file[name]
        if kind == 0:
            file[name] = h5py.SoftLink("/nowhere")
        elif kind == 1:
            file[name] = h5py.ExternalLink("/etc/passwd", "/x")
        elif kind == 2:
            file.create_group(name).attrs["MATLAB_sparse"] = rng.choice((3, -1, "x", 2**62))
        elif kind == 3:
            file.create_dataset(name, shape=(2**40, 2**10), chunks=(1, 8), dtype="f8")
        elif kind == 4:
            file[name] = h5py.Empty("f8")
        elif kind == 5:
            file.create_dataset(name, data=np.array([b"\xff\xfe", b"a"], dtype=h5py.string_dtype()))
        elif kind == 6:
            file.create_dataset(name, shape=array.shape, dtype=rng.choice((h5py.ref_dtype, h5py.vlen_dtype("f8"))))
        else:
            file[name] = change_arrays({name: array}, rng)[name]


def _in_mat(path: Path, rng: random.Random) -> None:
    import numpy as np
    from scipy.io import loadmat, savemat

    if path.read_bytes()[512:520] == b"\x89HDF\r\n\x1a\n" or path.read_bytes()[:4] == b"\x89HDF":
        _in_hdf5(path, rng)
        return
    arrays = {name: value for name, value in loadmat(path).items() if not name.startswith("__")}
    if rng.random() < 0.3:
        name = rng.choice(list(arrays))
        arrays[name] = rng.choice(({"a": arrays[name]}, [arrays[name], "x"], "text", np.array([], object)))
    else:
        arrays = change_arrays(arrays, rng)
    savemat(path, arrays, do_compression=rng.random() < 0.5)


def _in_sqlite(path: Path, rng: random.Random) -> None:
    statements = (
        "UPDATE items SET metadata = '{'",
        "UPDATE items SET metadata = '[1]'",
        "UPDATE items SET metadata = x'ff'",
        "UPDATE items SET id = x'ff' WHERE number = 1",
        "UPDATE codes SET code = x'00'",
        "UPDATE codes SET code = 'text'",
        "UPDATE codes SET modality = 'audio' WHERE serial = 1",
        "UPDATE codes SET item = 99999",
        "DELETE FROM state",
        "UPDATE state SET snapshot = '../..'",
        "UPDATE state SET version = 'x', last_serial = 'y'",
        "UPDATE state SET snapshot_serial = -5, snapshot_size = 1e300",
        "DROP TABLE codes",
        "DROP TABLE items",
        "DROP TABLE labels",
        "INSERT INTO keys VALUES (x'ff')",
        "INSERT INTO labels VALUES (x'ff', 1)",
        "PRAGMA user_version = 99",
        "PRAGMA application_id = 1",
        "ALTER TABLE items RENAME COLUMN metadata TO m",
    )
    connection = sqlite3.connect(path)
    with contextlib.suppress(sqlite3.Error), connection:
        connection.execute(rng.choice(statements))
    connection.close()


def _in_png(path: Path, rng: random.Random) -> None:
    import zlib

    data = path.read_bytes()
    header = bytearray(data[12:29])  # IHDR, whose checksum is made again
    side = rng.choice((0, 1, 7, 30000, 100000, 2**31 - 1, 2**32 - 1))
    at = 4 + 4 * rng.randrange(2)
    header[at : at + 4] = side.to_bytes(4, "big")
    if rng.random() < 0.3:
        header[12 + rng.randrange(5)] = rng.randrange(256)
    path.write_bytes(data[:12] + header + zlib.crc32(header).to_bytes(4, "big") + data[33:])


#: File ending -> change within the format, so that the damage gets past the first check.
INSIDE: dict[str, Callable[[Path, random.Random], None]] = {
    ".json": _in_json,
    ".jsonl": _in_json,
    ".yaml": _in_yaml,
    ".npz": _in_npz,
    ".npy": _in_npy,
    ".tar": _in_tar,
    ".parquet": _in_parquet,
    ".safetensors": _in_safetensors,
    ".h5": _in_hdf5,
    ".mat": _in_mat,
    ".sqlite": _in_sqlite,
    ".png": _in_png,
}
