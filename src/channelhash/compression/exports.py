"""Compressors for other programs: NumPy alone, ONNX, and PostgreSQL with pgvector.

What is computed is always `Compressor.encode` and, in NumPy and SQL, `Searcher.search` over all
vectors. Bits and numbers may differ where a product lies next to an edge: other libraries of linear
algebra round otherwise.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import unpack
from channelhash.codes.quantizer import Quantizer
from channelhash.compression.compressor import Compressor
from channelhash.errors import InputError, JobError, argument
from channelhash.utils.files import atomic_path, write_text
from channelhash.utils.optional_imports import library, naming_extra, onnx_runtime
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]

#: Below every length of a float32 vector but 0, which is divided by it instead.
_TINY = 1e-30
#: Version of ONNX's operators, that of exported models.
_OPSET = 17
#: Version of the file format that belongs to these operators.
_IR_VERSION = 8
#: Largest difference of outputs of the file and of NumPy, relative to the largest output.
_TOLERANCE = 1e-4
#: Largest share of the second stage's bytes that rounding may change.
_CHANGED = 0.01
#: Vectors that a written graph is run with.
_CHECKED_ROWS = 64
#: Nearest codes that the second stage orders in SQL: those that `Searcher.search` looks at.
_FIRST = 2000
#: Most numbers that pgvector keeps of a vector.
_WIDEST = 16_000
#: Longest value of PostgreSQL whose size takes 1 byte.
_SHORT = 126
#: Names of tables that SQL takes without quotes.
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")


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


@dataclass(frozen=True)
class _Graph:
    """Nodes and constants of a graph that is being written.

    Attributes:
        onnx: the package.
        nodes: in the order of computation.
        constants: arrays that nodes take.
    """

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, operator: str, *inputs: str | NDArray[Any], **attributes: Any) -> str:
        """Apply an operator to results of others and to constants; return the result's name."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        result = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, names, [result], **attributes))
        return result

    def _constant(self, values: NDArray[Any]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def cast(self, value: str, kind: str) -> str:
        """Turn a result into another type, as `onnx.TensorProto` calls it."""
        return self.add("Cast", value, to=getattr(self.onnx.TensorProto, kind))

    def length(self, rows: str) -> str:
        """Return the length of each row, never 0."""
        lengths = self.add("ReduceL2", rows, axes=[1], keepdims=1)
        return self.add("Max", lengths, np.array(_TINY, np.float32))

    def sum_bytes(self, values: str, places: NDArray[np.int64]) -> str:
        """Add the columns that lie in one byte; all are integers, so that floats do it exactly."""
        packing = np.zeros((len(places), places[-1] + 1), np.float32)
        packing[np.arange(len(places)), places] = 1
        return self.cast(self.add("MatMul", self.cast(values, "FLOAT"), packing), "UINT8")


class _Output(NamedTuple):
    """A result that a graph gives: its name outside and inside, type and shape."""

    name: str
    result: str
    kind: str
    shape: Sequence[str | int]


def write_onnx(compressor: Compressor, path: Path) -> None:
    """Write a graph from ``vectors`` ``(n, d)`` float32 to ``codes`` ``(n, ceil(k / 8))`` uint8.

    With a second stage it also gives ``rows``, uint8 without the last two bytes of each row, and
    ``scales`` ``(n,)`` float16, which are those bytes: ONNX has no operator that reads a number's
    bytes. onnxruntime runs the graph, and what it gives is compared before the file gets its name.

    Raises:
        InputError: ``onnx`` or ``onnxruntime`` is not installed.
        JobError: the graph makes other codes.
    """
    onnx = library("onnx", "onnx")
    graph = _Graph(onnx)
    n_code_bytes = -(-compressor.n_bits // 8)
    outputs = [_Output("codes", _add_codes(graph, compressor), "UINT8", ["n", n_code_bytes])]
    quantizer = compressor.quantizer
    if quantizer is not None:
        rows, scales = _add_rows(graph, _add_kept(graph, compressor), quantizer)
        outputs.append(_Output("rows", rows, "UINT8", ["n", quantizer.n_bytes - 2]))
        outputs.append(_Output("scales", scales, "FLOAT16", ["n"]))
    with atomic_path(path) as temporary:
        temporary.write_bytes(_model_of(graph, outputs, compressor).SerializeToString())
        if not _agrees(compressor, temporary):
            raise JobError(f"{path}: the graph makes other codes than the compressor")


def _add_prepared(graph: _Graph, compressor: Compressor, vectors: str = "vectors") -> str:
    """Add `prepare`."""
    if compressor.similarity != "cosine":
        return vectors
    return graph.add("Div", vectors, graph.length(vectors))


def _add_centred(graph: _Graph, compressor: Compressor) -> str:
    """Add prepared vectors without their mean."""
    return graph.add("Sub", _add_prepared(graph, compressor), compressor.mean)


def _add_kept(graph: _Graph, compressor: Compressor) -> str:
    """Add what the second stage keeps."""
    if compressor.centred:
        return _add_prepared(graph, compressor, _add_centred(graph, compressor))
    return _add_prepared(graph, compressor)


def _add_codes(graph: _Graph, compressor: Compressor) -> str:
    """Add the codes."""
    centred = _add_centred(graph, compressor)
    outputs = graph.add("MatMul", centred, compressor.weights)
    bits = graph.cast(graph.add("GreaterOrEqual", outputs, np.array(0, np.float32)), "FLOAT")
    places = np.arange(compressor.n_bits)
    values = (1 << (7 - places % 8)).astype(np.float32)
    return graph.sum_bytes(graph.add("Mul", bits, values), places // 8)


def _add_rows(graph: _Graph, vectors: str, quantizer: Quantizer) -> tuple[str, str]:
    """Add rows and scales of the second stage."""
    tables = quantizer.tables()
    centred = graph.add("Sub", vectors, quantizer.mean)
    components = graph.add("MatMul", centred, tables["rotation"])
    relative = graph.add("Div", graph.length(components), tables["usual"])
    units = graph.add("Mul", relative, tables["spread"])
    numbers = _add_search(graph, graph.add("Div", components, units), tables["edges"])
    shifted = graph.add("Mul", numbers, 1 << tables["shifts"].astype(np.int64))
    rounded = _add_look_up(graph, tables["levels"], shifted)
    shared = graph.add("Mul", components, rounded)
    squares = graph.add("Mul", rounded, rounded)
    axes = np.array([1])
    shared_sum = graph.add("ReduceSum", shared, axes, keepdims=0)
    square_sum = graph.add("ReduceSum", squares, axes, keepdims=0)
    scales = graph.cast(graph.add("Div", shared_sum, square_sum), "FLOAT16")
    return graph.sum_bytes(shifted, tables["places"]), scales


def _add_search(graph: _Graph, values: str, edges: _Floats) -> str:
    """Add the number of edges below each value, by halving: 255 edges take eight steps."""
    numbers: str | NDArray[np.int64] = np.zeros(len(edges), np.int64)
    for step in (128, 64, 32, 16, 8, 4, 2, 1):
        last = graph.add("Add", numbers, np.array(step - 1))
        above = graph.add("Greater", values, _add_look_up(graph, edges, last))
        size = graph.add("Mul", graph.cast(above, "INT64"), np.array(step))
        numbers = graph.add("Add", numbers, size)
    return str(numbers)


def _add_look_up(graph: _Graph, table: _Floats, columns: str) -> str:
    """Add look-ups of columns ``(n, m)`` in a table ``(m, c)``, of column i in its row i."""
    starts = np.arange(len(table)) * table.shape[1]
    return graph.add("Gather", table.ravel(), graph.add("Add", columns, starts))


def _model_of(graph: _Graph, outputs: Sequence[_Output], compressor: Compressor) -> Any:
    """Return the model that gives these results."""
    helper = graph.onnx.helper
    types = graph.onnx.TensorProto
    width = len(compressor.mean)
    given = helper.make_tensor_value_info("vectors", types.FLOAT, ["n", width])
    shown = []
    for name, result, kind, shape in outputs:
        graph.nodes.append(helper.make_node("Identity", [result], [name]))
        shown.append(helper.make_tensor_value_info(name, getattr(types, kind), shape))
    made = helper.make_graph(graph.nodes, "codes", [given], shown, graph.constants)
    model = helper.make_model(
        made,
        producer_name="channelhash",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    facts = {"n_bits": str(compressor.n_bits), "similarity": compressor.similarity}
    helper.set_model_props(model, facts)
    return model


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
    own = np.hstack([made[1], made[2][:, None].astype("<f2").view(np.uint8)])
    return bool((own != rows).mean() <= _CHANGED)


def _some_vectors(compressor: Compressor) -> _Floats:
    """Draw vectors around the mean, and one that is zero."""
    size = (_CHECKED_ROWS, len(compressor.mean))
    drawn = generator(0, "export", "vectors").normal(size=size)
    vectors = compressor.mean + drawn * (np.abs(compressor.mean).max() or 1)
    vectors[0] = 0
    return np.asarray(vectors, np.float32)


_MAP = """\
-- Short codes of vectors, as channelhash makes them, for PostgreSQL 14 with pgvector 0.7, or later.
-- Bytes of a vector of {width} numbers: {code_bytes} for its code of {n_bits} bits{second_bytes}.
BEGIN;
CREATE EXTENSION IF NOT EXISTS vector;

-- The map that was fitted: weights and vector give bit number `bit`.
CREATE TABLE channelhash_map (bit int PRIMARY KEY, weights vector({width}) NOT NULL);
INSERT INTO channelhash_map VALUES
{map_rows};

-- The code: the signs of the products of the weights and the {prepared}, less the mean.
CREATE FUNCTION channelhash_code(x vector) RETURNS bit
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    WITH given AS MATERIALIZED (SELECT {centred} AS y),
    bits AS (SELECT bit, inner_product(y, weights) >= 0 AS is_one FROM channelhash_map, given)
    SELECT string_agg(CASE WHEN is_one THEN '1' ELSE '0' END, '' ORDER BY bit)::bit({n_bits})
    FROM bits;
END;
"""

_CODES_IN_SQL = """
CREATE TABLE {table} (id text PRIMARY KEY, code bit({n_bits}) NOT NULL);
-- INSERT INTO {table} SELECT 'an id', channelhash_code('[…]');

-- Faster and approximate:
-- CREATE INDEX ON {table} USING hnsw (code bit_hamming_ops);

-- The k nearest codes: SELECT * FROM channelhash_search('[…]', 10);
CREATE FUNCTION channelhash_search(question vector, k int DEFAULT 10)
RETURNS TABLE (id text, distance float8)
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT {table}.id, {table}.code <~> (SELECT channelhash_code(question)) AS distance
    FROM {table} ORDER BY distance, {table}.id LIMIT k;
END;
COMMIT;
"""

_BOTH_IN_SQL = """
-- The second stage. pgvector keeps no numbers of 4 bits or fewer: what it keeps has 16 bits a
-- number, {second_size} bytes a vector, where channelhash has {own_size}. It orders at least as well.
CREATE FUNCTION channelhash_second(x vector) RETURNS halfvec
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ({kept})::halfvec({width});

CREATE TABLE {table} (
    id text PRIMARY KEY,
    code bit({n_bits}) NOT NULL,
    second halfvec({width}) NOT NULL
);
-- INSERT INTO {table} SELECT 'an id', channelhash_code(x), channelhash_second(x)
-- FROM (SELECT vector '[…]' AS x);

-- Faster and approximate; the index finds hnsw.ef_search codes, not `first`:
-- CREATE INDEX ON {table} USING hnsw (code bit_hamming_ops);
-- SET hnsw.ef_search = 1000;

-- The k most similar of the `first` nearest codes: SELECT * FROM channelhash_search('[…]', 10);
CREATE FUNCTION channelhash_search(question vector, k int DEFAULT 10, first int DEFAULT {first})
RETURNS TABLE (id text, similarity float8)
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    WITH near AS MATERIALIZED (
        SELECT {table}.id, second FROM {table}
        ORDER BY code <~> (SELECT channelhash_code(question)) LIMIT first
    )
    SELECT near.id, -(second {operator} (SELECT channelhash_second(question))) AS similarity
    FROM near ORDER BY similarity DESC, near.id LIMIT k;
END;
COMMIT;
"""


def write_sql(compressor: Compressor, path: Path, table: str = "items") -> None:
    """Write statements for PostgreSQL with pgvector: the function ``channelhash_code`` from a
    vector to its ``bit(k)``, a table, and the function ``channelhash_search``.

    The second stage is kept as ``halfvec``, 2 bytes a number: pgvector keeps no numbers of fewer
    bits. A database takes one such file a schema.

    Raises:
        InputError: ``table`` is no plain name of SQL, or pgvector keeps no vectors of that width.
    """
    width = len(compressor.mean)
    if not _TABLE.fullmatch(table):
        raise InputError(
            f"{argument('table')} {table!r}: not a name of lower-case letters, digits and _"
        )
    if width > _WIDEST:
        raise InputError(f"pgvector keeps vectors of up to {_WIDEST:,} numbers, not {width:,}")
    is_cosine = compressor.similarity == "cosine"
    prepare = "l2_normalize({})" if is_cosine else "{}"
    prepared = prepare.format("x")
    centred = f"{prepared} - {_vector(compressor.mean)}::vector"
    quantizer = compressor.quantizer
    second_size = _stored_bytes(2 * width)
    values = {
        "table": table,
        "width": width,
        "n_bits": compressor.n_bits,
        "code_bytes": _stored_bytes(-(-compressor.n_bits // 8)),
        "second_bytes": "" if quantizer is None else f", {second_size} for the second stage",
        "second_size": second_size,
        "own_size": 0 if quantizer is None else quantizer.n_bytes,
        "map_rows": ",\n".join(
            f"({bit}, {_vector(column)})" for bit, column in enumerate(compressor.weights.T)
        ),
        "prepared": "vector's direction" if is_cosine else "vector",
        "centred": centred,
        "kept": prepare.format(centred) if compressor.centred else prepared,
        "operator": "<->" if compressor.similarity == "euclidean" else "<#>",
        "first": _FIRST,
    }
    rest = _CODES_IN_SQL if quantizer is None else _BOTH_IN_SQL
    write_text(path, (_MAP + rest).format(**values))


def _stored_bytes(n_bytes: int) -> int:
    """Return the bytes of a value in PostgreSQL: with its width, and 1 or 4 bytes for its size."""
    with_width = n_bytes + 4
    return with_width + (1 if with_width <= _SHORT else 4)


def _vector(values: _Floats) -> str:
    """Return a vector as SQL writes it, in as few digits as give back every number.

    >>> _vector(np.array([0.1, -2], np.float32))
    "'[0.1,-2.0]'"
    """
    numbers = ",".join(str(value) for value in values.astype(np.float32))
    return f"'[{numbers}]'"
