"""Exported compressors against the compressor: the script in a Python without channelhash, the
graph by onnxruntime, the statements by PostgreSQL.
"""

import ast
import runpy
import subprocess
import sys
import uuid
from dataclasses import replace

import numpy as np
import pytest
from tests.compression.test_compressor import vectors
from tests.compression.test_models import SECOND, SIMILARITIES

from channelhash.codes import unpack
from channelhash.codes.quantizer import Quantizer
from channelhash.compression import exports, onnx_export
from channelhash.compression.compressor import Compressor, Searcher, prepare
from channelhash.errors import JobError
from extras import needs
from pages import DOCS, blocks_of
from refusals import check_refusal

#: Runs the script beside it, and keeps what it gives.
_USE = """
import sys
import numpy as np
sys.path.insert(0, ".")
import codes
given = np.load("given.npz")
made, rows = codes.encode(given["vectors"])
answers = [codes.search(question, made, rows, 10) for question in given["questions"]]
kept = {} if rows is None else {"rows": rows}
np.savez("made.npz", codes=made, answers=answers, **kept)
assert not any(name.partition(".")[0] == "channelhash" for name in sys.modules)
"""


def run_script(folder, rows, questions):
    """What the script gives in a Python that has NumPy alone."""
    np.savez(folder / "given.npz", vectors=rows, questions=questions)
    subprocess.run([sys.executable, "-I", "-c", _USE], cwd=folder, check=True)
    return dict(np.load(folder / "made.npz"))


def exact_compressor(similarity, second=True) -> Compressor:
    """One whose products of `exact_vectors` are exact in float32, in whatever order they are
    added.
    """
    random = np.random.default_rng(5)
    weights = random.integers(-8, 9, (24, 20)).astype(np.float32) / 8
    rotation = random.integers(-4, 5, (24, 17)).astype(np.float32) / 4
    bits = np.repeat(np.array([8, 4, 2, 1], np.uint8), [1, 4, 8, 4])
    centre = random.integers(-2, 3, 24).astype(np.float32)
    spread = np.linspace(4, 1, 17).astype(np.float32)
    quantizer = Quantizer(centre, rotation, spread, bits) if second else None
    return Compressor(-centre, weights, quantizer, similarity)


def same_bytes(rows, expected) -> float:
    """The share of equal bytes of components; scales are equal to rounding where these are."""
    are_equal = rows[:, :-4] == expected[:, :-4]
    scales, expected_scales = (
        np.ascontiguousarray(array[are_equal.all(axis=1), -4:]).view("<f4")
        for array in (rows, expected)
    )
    np.testing.assert_allclose(scales, expected_scales, rtol=1e-4)
    return float(are_equal.mean())


def exact_vectors(n=60) -> np.ndarray:
    return np.random.default_rng(6).integers(-9, 10, (n, 24)).astype(np.float32)


@pytest.mark.parametrize("similarity", ["inner", "euclidean"])
@pytest.mark.parametrize("second", [True, False])
def test_the_script_makes_the_very_same_bytes(similarity, second, tmp_path):
    compressor = exact_compressor(similarity, second)
    exports.write_numpy(compressor, tmp_path)
    rows = exact_vectors()
    made = run_script(tmp_path, rows, rows[:1])
    codes, stored = compressor.encode(rows)
    assert (made["codes"] == codes).all()
    if second:
        assert same_bytes(made["rows"], stored) == 1


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("second", "centred"), SECOND)
def test_the_script_encodes_and_finds_as_the_compressor_does(similarity, second, centred, tmp_path):
    rows = vectors(n=300)
    rows[7] = 0
    rows[9] = rows[8]
    compressor = Compressor.fit(rows, 20, second, similarity, centred=centred)
    exports.write_numpy(compressor, tmp_path)
    questions = np.vstack([vectors(n=4, seed=1), rows[8:9]])
    made = run_script(tmp_path, rows, questions)
    compressed = compressor.encode(rows)
    # a product that lies next to an edge is another one where matrices are multiplied otherwise
    assert (made["codes"] == compressed.codes).mean() > 0.999
    if second:
        assert same_bytes(made["rows"], compressed.rows) > 0.999
    searcher = Searcher(compressor, compressed)
    for question, answers in zip(questions, made["answers"], strict=True):
        found = searcher.search(question[None], k=len(rows), first=len(rows))
        scores = dict(zip(found.rows[0].tolist(), found.scores[0].tolist(), strict=True))
        own = [scores[row] for row in answers.tolist()]
        assert len(set(answers.tolist())) == 10
        np.testing.assert_allclose(own, found.scores[0, :10], rtol=1e-5, atol=1e-5)
    assert made["answers"][-1].tolist()[:2] == [8, 9]


@pytest.mark.parametrize(
    ("similarity", "second", "centred", "lines"),
    [
        ("cosine", None, False, 11),
        ("inner", None, False, 9),
        ("cosine", 4, False, 19),
        ("euclidean", 4, False, 19),
        ("cosine", 4, True, 20),
    ],
)
def test_the_script_is_short_and_needs_numpy_alone(similarity, second, centred, lines, tmp_path):
    compressor = Compressor.fit(vectors(), 20, second, similarity, centred=centred)
    text = exports.write_numpy(compressor, tmp_path)[1].read_text()
    tree = ast.parse(text)
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [ast.unparse(node) for node in imported] == ["import numpy as np"]
    code = text.replace(ast.get_source_segment(text, tree.body[0]), "")
    written = [line.strip() for line in code.splitlines() if line.strip()]
    assert len([line for line in written if not line.startswith(("#", "import "))]) == lines
    assert max(map(len, text.splitlines())) <= 100


def taught(**options) -> Compressor:
    """A compressor whose questions of another width are moved."""
    drawn = np.random.default_rng(3).normal(size=(12, 32)).astype(np.float32)
    return replace(Compressor.fit(vectors(n=60), 20, **options), question_map=drawn)


@pytest.mark.parametrize(("second", "centred"), SECOND)
def test_the_script_moves_questions_by_what_pairs_have_taught(second, centred, tmp_path):
    compressor = taught(second=second, centred=centred)
    rows, questions = vectors(n=60), vectors(n=4, d=12, seed=1)
    exports.write_numpy(compressor, tmp_path)
    made = run_script(tmp_path, rows, questions)
    expected = compressor.search(questions, compressor.encode(rows), k=10, first=60).rows
    assert (made["answers"] == expected).mean() > 0.9
    moved = runpy.run_path(str(tmp_path / "codes.py"))["ask"](questions[0])
    np.testing.assert_allclose(moved, compressor.ask(questions[:1]), atol=1e-5)
    assert max(map(len, (tmp_path / "codes.py").read_text().splitlines())) <= 100


def run_graph(path, rows):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"vectors": rows}), strict=True))


@pytest.mark.parametrize("similarity", ["inner", "euclidean"])
def test_the_graph_makes_the_very_same_bytes(similarity, tmp_path):
    needs("onnx")
    compressor = exact_compressor(similarity)
    exports.write_onnx(compressor, tmp_path / "codes.onnx")
    rows = exact_vectors()
    made = run_graph(tmp_path / "codes.onnx", rows)
    codes, stored = compressor.encode(rows)
    assert (made["codes"] == codes).all()
    own = np.hstack([made["rows"], made["scales"][:, None].view(np.uint8)])
    assert same_bytes(own, stored) == 1


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("second", "centred"), SECOND)
def test_the_graph_encodes_as_the_compressor_does(similarity, second, centred, tmp_path):
    needs("onnx")
    rows = vectors(n=300)
    rows[7] = 0
    compressor = Compressor.fit(rows, 20, second, similarity, centred=centred)
    exports.write_onnx(compressor, tmp_path / "codes.onnx")
    for part in (rows, rows[:1]):
        made = run_graph(tmp_path / "codes.onnx", part)
        codes, stored = compressor.encode(part)
        assert (made["codes"] == codes).mean() > 0.999
        if second:
            own = np.hstack([made["rows"], made["scales"][:, None].view(np.uint8)])
            assert same_bytes(own, stored) > 0.99


def test_a_graph_that_makes_other_codes_is_not_kept(tmp_path, monkeypatch):
    needs("onnx")
    compressor = Compressor.fit(vectors(), 20)
    other = Compressor.fit(vectors(seed=1), 20)
    constants = onnx_export._constants(other)
    monkeypatch.setattr(onnx_export, "_constants", lambda _: constants)
    says = "the graph makes other codes"
    check_refusal(says, exports.write_onnx, compressor, tmp_path / "codes.onnx", error=JobError)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def connection():
    """A connection to a schema of its own."""
    needs("postgres")
    needs("test")
    import psycopg
    from tests.search.servers import database

    schema = f"s{uuid.uuid4().hex[:20]}"
    with psycopg.connect(database(), autocommit=True) as opened:
        opened.execute("CREATE EXTENSION IF NOT EXISTS vector")
        opened.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}, public")
        yield opened


def add_rows(connection, rows, columns) -> None:
    for number, row in enumerate(rows):
        connection.execute(
            f"INSERT INTO things SELECT %s, {columns} FROM (SELECT %s::vector AS x)",
            (f"{number:03}", str(row.tolist())),
        )


def answers(connection, question) -> list[int]:
    found = connection.execute(
        "SELECT id FROM channelhash_search(%s, 10)", (str(question.tolist()),)
    )
    return [int(name) for (name,) in found]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("centred", [False, True])
def test_postgres_makes_the_same_codes_and_orders_by_the_vectors(
    similarity, centred, connection, tmp_path
):
    rows = vectors(n=60)
    rows[7] = 0
    compressor = Compressor.fit(rows, 20, 4, similarity, centred=centred)
    questions = vectors(n=3, seed=1)
    if similarity == "cosine":
        compressor = taught(second=4, centred=centred)
        questions = vectors(n=3, d=12, seed=1)
    exports.write_sql(compressor, tmp_path / "codes.sql", "things")
    connection.execute((tmp_path / "codes.sql").read_text())
    add_rows(connection, rows, "channelhash_code(x), channelhash_second(x)")
    made = connection.execute("SELECT code::text FROM things ORDER BY id").fetchall()
    codes = unpack(compressor.encode(rows).codes, 20)
    own = np.array([[bit == "1" for bit in code] for (code,) in made])
    assert (own == codes).mean() > 0.999
    for question in questions:
        kept = halves(np.vstack([rows, compressor.ask(question[None])]), compressor)
        scores = kept[:-1] @ kept[-1]
        if similarity == "euclidean":
            scores = -np.linalg.norm(kept[:-1] - kept[-1], axis=1)
        found = answers(connection, question)
        np.testing.assert_allclose(scores[found], np.sort(scores)[::-1][:10], rtol=1e-5)
    sizes = "SELECT max(pg_column_size(code)), max(pg_column_size(second)) FROM things"
    code_size, second_size = connection.execute(sizes).fetchone()
    says = f"{code_size} for its code of 20 bits, {second_size} for the second stage."
    assert says in (tmp_path / "codes.sql").read_text()


def halves(rows, compressor) -> np.ndarray:
    """What the second stage keeps of rows, in half precision."""
    kept = prepare(rows, compressor.similarity)
    if compressor.centred:
        kept = prepare(kept - compressor.mean, compressor.similarity)
    return kept.astype(np.float16).astype(np.float64)


@pytest.mark.parametrize("width", [32, 12])
def test_postgres_finds_the_nearest_codes_without_a_second_stage(width, connection, tmp_path):
    rows = vectors(n=60)
    compressor = Compressor.fit(rows, 20, None) if width == 32 else taught(second=None)
    exports.write_sql(compressor, tmp_path / "codes.sql", "things")
    connection.execute((tmp_path / "codes.sql").read_text())
    add_rows(connection, rows, "channelhash_code(x)")
    searcher = Searcher(compressor, compressor.encode(rows))
    for question in rows[:3, :width]:
        found = searcher.search(question[None], k=10, by_bits=True)
        assert answers(connection, question) == found.rows[0].tolist()


@pytest.mark.parametrize("table", ["Items", "a b", "x; drop table y", "1st", ""])
def test_a_table_has_a_plain_name(table, tmp_path):
    compressor = Compressor.fit(vectors(), 8, None)
    says = "table .*: not a name of lower-case letters, digits and _"
    check_refusal(says, exports.write_sql, compressor, tmp_path / "codes.sql", table)


def test_all_exports_lie_in_one_folder(tmp_path):
    needs("onnx")
    compressor = Compressor.fit(vectors(), 8)
    files = exports.export_compressor(compressor, tmp_path / "new", onnx=True, sql=True)
    assert [file.name for file in files] == ["codes.npz", "codes.py", "codes.onnx", "codes.sql"]
    assert sorted(files) == sorted((tmp_path / "new").iterdir())
    assert len(exports.export_compressor(compressor, tmp_path / "numpy")) == 2


@pytest.mark.parametrize(
    ("engine", "code", "document"),
    [
        ("elasticsearch", [-127, 0, 1, 42, 127], {"code": "8100012a7f"}),
        ("opensearch", [0b01100011, -1], {"code": [99, -1]}),
        ("vespa", [-1, 0, 17, -128, 34, -2], {"code": {"values": "FF00118022FE"}}),
        ("qdrant", [0b01100011], {"id": 0, "vector": [0, 1, 1, 0, 0, 0, 1, 1]}),
    ],
)
def test_documents_for_engines_hold_the_bytes_that_these_document(engine, code, document):
    *_, block = blocks_of((DOCS / "how-to" / "recipes.md").read_text())
    names = {"np": np, "codes": np.array([code], np.int8).view(np.uint8)}
    exec(block.code, names)
    assert names[engine] == document
