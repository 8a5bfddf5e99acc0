"""Compressors for other programs: a script that needs NumPy alone, ONNX, PostgreSQL with pgvector.

What is computed is always `Compressor.encode` and, in NumPy and SQL, `Searcher.search` over all
vectors. Bits and numbers may differ where a product lies next to an edge: other libraries of linear
algebra round otherwise.
"""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.compression.compressor import Compressor
from channelhash.compression.onnx_export import write_onnx
from channelhash.compression.sql_export import write_sql
from channelhash.utils.files import atomic_path, write_text

_HEAD = '''\
"""Codes of vectors, as channelhash makes them; needs NumPy alone, and codes.npz beside it.

{bytes} bytes a vector of {width} numbers; vectors are compared by {similarity}.
encode(vectors) takes (n, {width}) and returns the codes, packed bits (n, {n_code_bytes}), and
{second}.
search(question, codes, rows, k) returns the numbers of the k most similar rows, best first.
"""

import numpy as np

f = dict(np.load(__file__[:-3] + ".npz"))
'''

_LENGTH = """

def length(x):  # of each row; never 0
    return np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
"""

_UNIT = """

def prepare(vectors):  # only directions count
    x = np.asarray(vectors, np.float32)
    return x / length(x)
"""

_AS_THEY_ARE = """

def prepare(vectors):
    return np.asarray(vectors, np.float32)
"""

_CODES_ALONE = """

def encode(vectors):
    return np.packbits((prepare(vectors) - f["mean"]) @ f["weights"] >= 0, axis=1), None


def search(question, codes, rows, k=10):
    u = ((prepare([question]) - f["mean"]) @ f["weights"])[0]
    costs = np.pad(np.abs(u), (0, -len(u) % 8)).reshape(-1, 8) @ f["byte_bits"]
    differing = codes ^ np.packbits(u >= 0)  # a bit that differs costs |u|
    distances = sum(table[column] for table, column in zip(costs, differing.T))
    return np.argsort(distances, kind="stable")[:k]
"""

_ENCODE = """

def encode(vectors):
    x = prepare(vectors)
    codes = np.packbits((x - f["mean"]) @ f["weights"] >= 0, axis=1)
    y = ({kept} - f["centre"]) @ f["rotation"]
    z = y / (f["spread"] * (length(y) / f["usual"]))
    numbers = [np.searchsorted(edges, column) for edges, column in zip(f["edges"], z.T)]
    values = np.stack(numbers, axis=1) << f["shifts"]  # each at its place in a byte
    h = f["levels"][np.arange(len(numbers)), values]
    scale = (np.einsum("ij,ij->i", y, h) / np.einsum("ij,ij->i", h, h)).astype("<f2")
    packed = np.add.reduceat(values, f["starts"], axis=1).astype(np.uint8)
    return codes, np.hstack([packed, scale[:, None].view(np.uint8)])


def search(question, codes, rows, k=10):  # by the second stage alone
    q = {asked}[0]
    tables = np.add.reduceat((q @ f["rotation"])[:, None] * f["levels"], f["starts"])
    products = sum(table[column] for table, column in zip(tables, rows.T))
    scale = rows[:, -2:].copy().view("<f2")[:, 0].astype(np.float32)
    scores = products * scale + q @ f["centre"]
"""

_CENTRED = 'prepare({} - f["mean"])'

_BY_DISTANCE = """\
    h = f["levels"][np.arange(len(f["places"])), rows[:, f["places"]]]
    stored = (h * scale[:, None]) @ f["rotation"].T + f["centre"]
    scores = 2 * scores - np.square(stored).sum(axis=1)
"""

_ORDER = """\
    return np.argsort(-scores, kind="stable")[:k]
"""


def write_numpy(compressor: Compressor, folder: Path) -> list[Path]:
    """Write ``codes.npz`` and ``codes.py``, a script with ``encode`` and ``search`` that needs
    NumPy alone; return both.

    Of up to 4,096 vectors the bytes are ours wherever NumPy multiplies matrices by the same
    library; of more, which are multiplied in blocks here, a number next to an edge may differ.
    """
    arrays_file = folder / "codes.npz"
    with atomic_path(arrays_file) as temporary, open(temporary, "wb") as file:
        np.savez(file, **_numpy_arrays(compressor))
    write_text(folder / "codes.py", _script(compressor))
    return [arrays_file, folder / "codes.py"]


def _numpy_arrays(compressor: Compressor) -> dict[str, Any]:
    arrays = {"mean": compressor.mean, "weights": compressor.weights}
    if compressor.quantizer is None:
        values = np.arange(256, dtype=np.uint8)[:, None]
        return arrays | {"byte_bits": np.unpackbits(values, axis=1).T.astype(np.float64)}
    return arrays | {"centre": compressor.quantizer.mean} | compressor.quantizer.tables()


def _script(compressor: Compressor) -> str:
    """Return the script: the steps that this compressor has."""
    quantizer = compressor.quantizer
    second = "None, as there is no second stage"
    if quantizer is not None:
        second = f"the rows of the second stage (n, {quantizer.n_bytes})"
    head = _HEAD.format(
        bytes=compressor.n_bytes,
        width=len(compressor.mean),
        similarity=compressor.similarity,
        n_code_bytes=-(-compressor.n_bits // 8),
        second=second,
    )
    is_cosine = compressor.similarity == "cosine"
    prepare = _LENGTH + _UNIT if is_cosine else _AS_THEY_ARE
    if quantizer is None:
        return head + prepare + _CODES_ALONE
    length = "" if is_cosine else _LENGTH
    scores = _BY_DISTANCE if compressor.similarity == "euclidean" else ""
    kept = _CENTRED if compressor.centred else "{}"
    encode = _ENCODE.format(kept=kept.format("x"), asked=kept.format("prepare([question])"))
    return head + length + prepare + encode + scores + _ORDER


def export_compressor(
    compressor: Compressor, folder: str | PathLike[str], onnx: bool = False, sql: bool = False
) -> list[Path]:
    """Write files that make the codes of a compressor without channelhash.

    Args:
        compressor: what was fitted.
        folder: where the files go; made where it is missing, and files of these names are replaced.
        onnx: also write ``codes.onnx``, a graph from vectors ``(n, d)`` to both stages. It is run
            once, and compared with the compressor.
        sql: also write ``codes.sql``, statements for PostgreSQL with pgvector.

    Returns:
        The files: ``codes.npz`` and ``codes.py``, which needs NumPy alone, and those asked for.

    Raises:
        InputError: ``onnx`` is asked for and not installed, or pgvector keeps no such vectors.
        JobError: the graph makes other codes.

    >>> import tempfile
    >>> vectors = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = export_compressor(Compressor.fit(vectors, n_bits=8), folder, sql=True)
    >>> [file.name for file in files]
    ['codes.npz', 'codes.py', 'codes.sql']
    """
    place = Path(folder)
    files = write_numpy(compressor, place)
    if onnx:
        files.append(place / "codes.onnx")
        write_onnx(compressor, files[-1])
    if sql:
        files.append(place / "codes.sql")
        write_sql(compressor, files[-1])
    return files
