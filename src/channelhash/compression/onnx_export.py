"""Compressors as graphs of ONNX."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import unpack
from channelhash.codes.quantizer import Quantizer
from channelhash.compression.compressor import Compressor
from channelhash.errors import JobError
from channelhash.utils.files import atomic_path
from channelhash.utils.optional_imports import library, naming_extra, onnx_runtime
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]

#: Smallest output, relative to the largest, whose sign rounding cannot change.
_TOLERANCE = 1e-4
#: Largest share of the second stage's bytes that rounding may change.
_CHANGED = 0.01
#: Vectors that a written graph is run with.
_CHECKED_ROWS = 64
#: Levels of a component, at most.
_LEVELS = 256

#: The graph, with the operators of exported models. Type 1 is float32, 2 uint8 and 7 int64.
_GRAPH = """\
<
  ir_version: 8, opset_import: ["": 17], producer_name: "channelhash",
  metadata_props: ["n_bits": "{n_bits}", "similarity": "{similarity}"]
>
codes (float[n, {width}] vectors) => ({outputs})
{{
{steps}}}
"""

#: `prepare`, for cosines; a length is never 0.
_UNIT = """\
{made}_length = ReduceL2 <axes = [1], keepdims = 1> ({given})
{made}_divisor = Max ({made}_length, tiny)
{made} = Div ({given}, {made}_divisor)
"""

_AS_IT_IS = """\
{made} = Identity ({given})
"""

_CODES = """\
centred = Sub (x, mean)
outputs = MatMul (centred, weights)
is_one = GreaterOrEqual (outputs, zero)
ones = Cast <to = 1> (is_one)
code_bytes = MatMul (ones, bit_values)
codes = Cast <to = 2> (code_bytes)
"""

_COMPONENTS = """\
around = Sub (kept, centre)
y = MatMul (around, rotation)
"""

#: A step of the search for the number of edges below a component: 255 edges take eight. The place
#: is that of the edge, or the level, in a table of all components.
_HALVING = """\
offset_{size} = Constant <value_int = {before}> ()
tried_{size} = Add ({place}, offset_{size})
edge_{size} = Gather (edges, tried_{size})
is_above_{size} = Greater (z, edge_{size})
size_{size} = Constant <value_int = {size}> ()
moved_{size} = Where (is_above_{size}, size_{size}, none)
place_{size} = Add ({place}, moved_{size})
"""

_ROWS = """\
numbers = Sub (place_1, starts)
values = Mul (numbers, factors)
level_places = Add (values, starts)
h = Gather (levels, level_places)
shown_values = Cast <to = 1> (values)
row_bytes = MatMul (shown_values, byte_places)
rows = Cast <to = 2> (row_bytes)
"""

#: The scale that keeps the length; see `Quantizer`.
_SCALES = """\
h_squares = Mul (h, h)
a = ReduceSum <keepdims = 0> (h_squares, axis)
b = MatMul (h, slopes)
kept_squares = Mul (kept, kept)
kept_square = ReduceSum <keepdims = 0> (kept_squares, axis)
c = Sub (square, kept_square)
b_square = Mul (b, b)
a_c = Mul (a, c)
difference = Sub (b_square, a_c)
discriminant = Max (difference, zero)
root = Sqrt (discriminant)
shares = Mul (y, h)
least = ReduceSum <keepdims = 0> (shares, axis)
direction = Add (least, b)
is_ahead = GreaterOrEqual (direction, zero)
other_root = Neg (root)
chosen = Where (is_ahead, root, other_root)
numerator = Sub (chosen, b)
scale = Div (numerator, a)
scales = Identity (scale)
"""


def write_onnx(compressor: Compressor, path: Path) -> None:
    """Write a graph from ``vectors`` ``(n, d)`` float32 to ``codes`` ``(n, ceil(k / 8))`` uint8.

    With a second stage it also gives ``rows``, uint8 without the last four bytes of each row, and
    ``scales`` ``(n,)`` float32, which are those bytes: ONNX has no operator that reads a number's
    bytes. onnxruntime runs the graph, and what it gives is compared before the file gets its name.

    Raises:
        InputError: ``onnx`` or ``onnxruntime`` is not installed.
        JobError: the graph makes other codes.
    """
    onnx = library("onnx", "onnx")
    model = onnx.parser.parse_model(_text(compressor))
    for name, values in _constants(compressor).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    with atomic_path(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
        if not _agrees(compressor, temporary):
            raise JobError(f"{path}: the graph makes other codes than the compressor")


def _text(compressor: Compressor) -> str:
    """Return the graph in ONNX's own language, without its constants."""
    prepare = _UNIT if compressor.similarity == "cosine" else _AS_IT_IS
    outputs = f"uint8[n, {-(-compressor.n_bits // 8)}] codes"
    steps = prepare.format(given="vectors", made="x") + _CODES
    if compressor.quantizer is not None:
        outputs += f", uint8[n, {compressor.quantizer.n_bytes - 4}] rows, float[n] scales"
        kept = _AS_IT_IS.format(given="x", made="kept")
        if compressor.centred:
            kept = prepare.format(given="centred", made="kept")
        steps += kept + _COMPONENTS + _UNIT.format(given="y", made="z")
        steps += _search() + _ROWS + _SCALES
    return _GRAPH.format(
        n_bits=compressor.n_bits,
        similarity=compressor.similarity,
        width=len(compressor.mean),
        outputs=outputs,
        steps=steps,
    )


def _search() -> str:
    """Return the steps that find the place of each component."""
    steps = ""
    place = "starts"
    size = _LEVELS
    while size > 1:
        size //= 2
        steps += _HALVING.format(size=size, before=size - 1, place=place)
        place = f"place_{size}"
    return steps


def _constants(compressor: Compressor) -> dict[str, NDArray[Any]]:
    """Return the arrays that the graph takes, by name."""
    bits = np.arange(compressor.n_bits)
    bit_values = np.zeros((len(bits), -(-len(bits) // 8)), np.float32)
    bit_values[bits, bits // 8] = 1 << (7 - bits % 8)
    constants: dict[str, NDArray[Any]] = {
        "mean": compressor.mean,
        "weights": np.ascontiguousarray(compressor.weights),
        "bit_values": bit_values,
        "zero": np.array(0, np.float32),
        "tiny": np.array(1e-30, np.float32),  # below all other lengths of vectors
    }
    if compressor.quantizer is not None:
        constants |= _row_constants(compressor.quantizer)
    return constants


def _row_constants(quantizer: Quantizer) -> dict[str, NDArray[Any]]:
    """Return the arrays of the second stage."""
    tables = quantizer.tables()
    n = len(quantizer.bits)
    byte_places = np.zeros((n, tables["places"][-1] + 1), np.float32)
    byte_places[np.arange(n), tables["places"]] = 1
    return {
        "centre": quantizer.mean,
        "rotation": np.ascontiguousarray(quantizer.rotation),
        "edges": np.pad(tables["edges"], ((0, 0), (0, 1))).ravel(),
        "levels": tables["levels"].ravel(),
        "starts": np.arange(n) * _LEVELS,
        "none": np.array(0),
        "factors": 1 << tables["shifts"].astype(np.int64),
        "byte_places": byte_places,
        "slopes": tables["slopes"],
        "square": np.array(quantizer.mean @ quantizer.mean),
        "axis": np.array([1]),
    }


def _agrees(compressor: Compressor, path: Path) -> bool:
    """Run a graph; return whether it makes the bytes of `Compressor.encode`, to rounding."""
    with naming_extra():
        runtime = onnx_runtime()
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    vectors = _some_vectors(compressor)
    made = session.run(None, {"vectors": vectors})
    codes, rows = compressor.encode(vectors)
    outputs = np.abs(compressor.outputs(vectors))
    certain = outputs > _TOLERANCE * outputs.max()
    n_bits = compressor.n_bits
    if (unpack(made[0], n_bits) != unpack(codes, n_bits))[certain].any():
        return False
    if rows is None:
        return True
    scales = np.ascontiguousarray(rows[:, -4:]).view("<f4")[:, 0]
    if not np.allclose(made[2], scales, rtol=_CHANGED):
        return False
    return bool((made[1] != rows[:, :-4]).mean() <= _CHANGED)


def _some_vectors(compressor: Compressor) -> _Floats:
    """Draw vectors around the mean, and one that is zero."""
    size = (_CHECKED_ROWS, len(compressor.mean))
    drawn = generator(0, "export", "vectors").normal(size=size)
    vectors = compressor.mean + drawn * (np.abs(compressor.mean).max() or 1)
    vectors[0] = 0
    return np.asarray(vectors, np.float32)
