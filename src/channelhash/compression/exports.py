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

{bytes} bytes a vector of {width} numbers.
encode(vectors) takes (n, {width}) and returns the codes, packed bits (n, {n_code_bytes}), and
{second}.
search(question, codes, rows, k) returns the numbers of the k most similar rows, best first.
"""

import numpy as np

f = dict(np.load(__file__[:-3] + ".npz"))
'''

_UNIT = """

def unit(x):  # rows of length 1
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30)
"""

_ASK = """

def ask(question):  # the vector that those of documents are compared with
    return {asked}
"""

_CODES_ALONE = """

def encode(vectors):
    x = {vectors}
    return np.packbits((x - f["mean"]) @ f["weights"] >= 0, axis=1), None


def search(question, codes, rows, k=10):
    u = ({question} - f["mean"]) @ f["weights"]
    ones = np.unpackbits(codes, axis=1, count=u.shape[1]) > 0
    scores = np.where(ones, u, 0).sum(axis=1)  # a bit that differs costs |u|
    return np.argsort(-scores, kind="stable")[:k]
"""

_BOTH = """

def encode(vectors):
    x = {vectors}
    codes = np.packbits((x - f["mean"]) @ f["weights"] >= 0, axis=1)
{centring}\
    z = unit((x - f["centre"]) @ f["rotation"])
    values = sum(z > edge for edge in f["edges"]) << f["shifts"]  # each at its place in a byte
    h = f["levels"][f["columns"], values]
    # the scale s that keeps the length, |centre + s R h| = |x|, solves a s² + 2 b s + c = 0
    a, b, c = (h * h).sum(axis=1), h @ f["slopes"], f["square"] - (x * x).sum(axis=1)
    root = np.copysign(np.sqrt(np.maximum(b * b - a * c, 0)), (x @ f["rotation"] * h).sum(axis=1))
    scale = ((root - b) / a).astype("<f4")[:, None]
    packed = np.add.reduceat(values, f["starts"], axis=1).astype(np.uint8)
    return codes, np.hstack([packed, scale.view(np.uint8)])


def search(question, codes, rows, k=10):  # by the second stage alone
    q = {question} @ f["rotation"]
    h = f["levels"][f["columns"], rows[:, f["places"]]] * rows[:, -4:].copy().view("<f4")
    scores = {scores}
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
    arrays: dict[str, Any] = {"mean": compressor.mean, "weights": compressor.weights}
    if compressor.question_map is not None:
        arrays["question_map"] = compressor.question_map
    quantizer = compressor.quantizer
    if quantizer is None:
        return arrays
    tables = quantizer.tables()
    most_levels = 2 ** int(quantizer.bits.max())
    return arrays | {
        **tables,
        "edges": tables["edges"][:, : most_levels - 1].T,
        "columns": np.arange(len(quantizer.bits)),
        "square": quantizer.mean @ quantizer.mean,
    }


def _script(compressor: Compressor) -> str:
    """Return the script: the steps that this compressor has."""
    quantizer = compressor.quantizer
    second = "None, as there is no second stage"
    if quantizer is not None:
        second = (
            f"the rows of the second stage (n, {quantizer.n_bytes}), compared by "
            f"{compressor.similarity}"
        )
    head = _HEAD.format(
        bytes=compressor.n_bytes,
        width=len(compressor.mean),
        n_code_bytes=-(-compressor.n_bits // 8),
        second=second,
    )
    unit = "unit" if compressor.similarity == "cosine" else ""
    given = "unit(np.asarray({}, np.float32))" if unit else "np.asarray({}, np.float32)"
    vectors = given.format("vectors")
    question = given.format("[question]")
    ask = ""
    if compressor.question_map is not None:
        ask = _ASK.format(asked=f'{unit}({question} @ f["question_map"])')
        question = "ask(question)"
    if quantizer is None:
        steps = _CODES_ALONE.format(vectors=vectors, question=question)
        return head + (_UNIT if unit else "") + ask + steps
    centring = ""
    if compressor.centred:
        centring = f'    x = {unit}(x - f["mean"])\n'
        question = f'{unit}({question} - f["mean"])'
    scores = "(h * q).sum(axis=1)"
    if compressor.similarity == "euclidean":
        question = f'({question} - f["centre"])'
        scores = "-np.square(h - q).sum(axis=1)"
    return (
        head
        + _UNIT
        + ask
        + _BOTH.format(vectors=vectors, question=question, centring=centring, scores=scores)
    )


def export_compressor(
    compressor: Compressor, folder: str | PathLike[str], onnx: bool = False, sql: bool = False
) -> list[Path]:
    """Write files that make the codes of a compressor without channelhash.

    Args:
        compressor: what was fitted.
        folder: where the files go; made where it is missing, and files of these names are replaced.
        onnx: also write ``codes.onnx``, a graph from vectors ``(n, d)`` to both stages. It is run
            once, and compared with the compressor. Questions that pairs have taught to ask are
            moved first, by ``ask`` of ``codes.py``.
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
