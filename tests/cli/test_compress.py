"""``channelhash compress``: the table, the choice and JSON."""

import json

import numpy as np
import pytest

import channelhash as ch
from channelhash.compression.compressor import Searcher
from channelhash.search import SearchOptions, search_vectors
from small_runs import assert_refused, run_command, run_json, run_text


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    topics = random.normal(size=(20, 32))
    documents = topics[np.arange(400) % 20] + 0.5 * random.normal(size=(400, 32))
    questions = topics + 0.5 * random.normal(size=(20, 32))
    np.savez(tmp_path / "d.npz", vectors=documents.astype(np.float32))
    np.save(tmp_path / "q.npy", questions)
    lines = [f"{row % 20}\t{row}\n" for row in range(400)]
    (tmp_path / "qrels.tsv").write_text("".join(lines))
    return tmp_path


def test_codes_are_measured_against_floats_and_judgements(files, capsys):
    words = ("compress", files / "d.npz", "--questions", files / "q.npy")
    found = run_json(capsys, *words, "--qrels", files / "qrels.tsv", "--bits", 8, "--bits", 16)
    assert (found["vectors"], found["width"], found["questions"]) == (400, 32, 20)
    assert not found["held_out"]
    floats, *codes = found["codes"]
    assert floats["neighbours"]["mean"] == 1
    assert floats["bytes"] == 128
    ours = [code for code in codes if code["ours"]]
    assert [code["n_bits"] for code in ours] == [8] * 5 + [16] * 5
    assert all(code["bytes"] < 30 for code in ours)
    assert [code["name"] for code in codes[-3:]] == ["sign", "int8", "sign, first 100, then int8"]
    ends = codes[-1]["ndcg"]
    assert ends["lower"] <= ends["mean"] <= ends["upper"]
    assert floats["ndcg_difference"]["upper"] == 0
    assert found["chosen"] in [code["name"] for code in ours]
    assert found["centred"] is False
    assert not found["centring"]["is_apart"]  # of 20 questions
    assert found["notes"] == []


def test_without_questions_some_are_held_out(files, capsys):
    text = run_text(capsys, "compress", files / "d.npz", "--bits", 8, "--quality", "50%")
    assert "360 vectors of 32 numbers, 20 questions (held out of them)" in text
    assert "Second stages keep vectors as they are: 8 bits, then 4 bits a number has R@10" in text
    assert "on 20 other questions)" in text
    assert "Smallest code that is not significantly worse than 50 %: 8 bits" in text
    assert "nDCG" not in text


def test_the_table_goes_into_markdown_and_a_plot(files, capsys):
    words = ("compress", files / "d.npz", "--questions", files / "q.npy", "--bits", 8, "--centred")
    judged = ("--qrels", files / "qrels.tsv")
    report = files / "report.md"
    plots = [files / "plot.png", files / "plot.svg"]
    text = run_text(capsys, *words, *judged, "--markdown", report, "--plot", plots[0])
    lines = report.read_text(encoding="utf-8").splitlines()
    assert lines[0] == text.splitlines()[0]
    assert [line.count("|") for line in lines[2:14]] == [9] * 12
    assert lines[4].startswith("| floats | 128 | 100.0 (100.0–100.0) |")
    assert "Second stages keep vectors less their mean" in lines
    assert plots[0].read_bytes().startswith(b"\x89PNG")
    run_text(capsys, *words, "--plot", plots[1])
    drawn = plots[1].read_text(encoding="utf-8")
    assert "sign, first 100, then int8" in drawn
    assert "nDCG" not in drawn


@pytest.fixture
def quick(monkeypatch):
    """Little is learned."""
    monkeypatch.setattr("channelhash.compression.learning._STEPS", 3)
    monkeypatch.setattr("channelhash.compression.pairs._STEPS", 3)


def test_learned_codes_stand_beside_itq_and_questions_learn_from_pairs(files, capsys, quick):
    words = ("compress", files / "d.npz", "--bits", 8, "--method", "itq", "--method", "learned")
    plot = files / "plot.svg"
    found = run_json(capsys, *words, "--plot", plot)
    methods = [code["codes"] for code in found["codes"]]
    assert methods == [None] + ["learned"] * 6 + ["itq"] * 6 + [None] * 3
    drawn = plot.read_text(encoding="utf-8")
    for line in ("8 bits, second", "8 learned bits, second", "learned bits by distance"):
        assert line in drawn
    (files / "clicks.tsv").write_text("1\t1\t3\n2\t2\n2\tlost\n")
    asked = (*words[:4], "--questions", files / "q.npy", "--pairs", files / "clicks.tsv")
    for judged, n_questions in (((), 2), (("--qrels", files / "qrels.tsv"), 20)):
        assert run_command(*asked, *judged, "--json") == 0
        said = capsys.readouterr()
        found = json.loads(said.out)
        names = [code["name"] for code in found["codes"][:2]]
        assert names == ["floats", "floats, questions learned from pairs"]
        assert found["questions"] == n_questions
        assert "pairs: 1 of 3 documents are unknown" in said.err
        assert "questions are learned from 2 pairs of 2 questions" in said.err


def test_a_store_asks_as_pairs_have_taught(files, capsys, quick):
    questions = np.load(files / "q.npy")[:, :20]
    np.save(files / "q.npy", questions)
    words = ("--questions", files / "q.npy", "--pairs", files / "qrels.tsv", "--method", "learned")
    out = files / "my.store"
    keep = ("--bits", 16, "--quality", 60, "--out", out)
    run_text(capsys, "compress", files / "d.npz", *words, *keep)
    found = run_json(capsys, "search", out, "--vector", files / "q.npy", "-k", 3)
    vectors = np.load(files / "d.npz")["vectors"]
    compressor = ch.Compressor.load(out)
    searcher = Searcher(compressor, compressor.encode(vectors))
    expected = searcher.search(questions, k=3, by_bits=True).scores
    assert compressor.question_map.shape == (20, 32)
    answers = [[-hit["distance"] for hit in answer["results"]] for answer in found["answers"]]
    assert answers == expected.tolist()
    written = run_json(capsys, "export", out)["files"]
    assert list(written) == ["vector"]
    says = "question: no map of it was fitted"
    assert_refused(capsys, "export", out, "--modality", "question", says=says)


def test_a_new_store_of_vectors_learns_codes(files, capsys, quick):
    for method in ("itq", "learned"):
        words = ("--method", method, "--bits", 16)
        run_text(capsys, "index", "create", files / method, files / "d.npz", *words)
    itq, learned = (ch.load_model(files / method) for method in ("itq", "learned"))
    assert learned.architecture["codes"] == "learned"
    assert (learned.maps["vector"].weights != itq.maps["vector"].weights).any()
    assert "vector" in learned.stage.quantizers


def test_unknown_ids_and_foreign_questions_are_said(files, capsys):
    (files / "some.tsv").write_text("0\t0\n0\tlost\n99\t1\n")
    np.save(files / "far.npy", -1000 * np.load(files / "d.npz")["vectors"].mean(axis=0)[None])
    words = ("compress", files / "d.npz", "--questions", files / "far.npy", "--bits", 8)
    assert run_command(*words, "--qrels", files / "some.tsv") == 0
    said = capsys.readouterr().err
    assert "judgements: 1 of 2 questions are unknown" in said
    assert "judgements: 1 of 3 documents are unknown" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("lost.npy", "lost.npy: no such file"),
        ("d.npz --bits 33", "--bits 33: vectors of 32 numbers have 1 to 32"),
        ("d.npz --array lost", "has no array 'lost'; it has vectors"),
        ("d.npz --questions narrow.npy", "questions have 2 numbers, vectors 32"),
        ("d.npz --qrels qrels.tsv", "judgements and pairs are of questions; give these, too"),
        ("d.npz --questions q.npy --qrels bad.tsv", "bad.tsv, line 1: has 1 cells"),
        ("bad.npy", "bad.npy, row 1 (id 1): is zero"),
        ("empty.npy", "empty.npy: not a readable .npy file"),
        ("empty.jsonl", "empty.jsonl: has no array of vectors; it has nothing"),
        ("none.npy", "none.npy: holds an array (0, 32)"),
        ("one.npy", "vectors: 1 of them; of ten or more some can be held out"),
        ("one.npy --questions q.npy", "1 vector: codes are fitted to two or more"),
        ("equal.npy", "all vectors are equal"),
        ("d.npz --method nonsense", "unknown --method 'nonsense'; known: itq, learned"),
        ("d.npz --pairs qrels.tsv", "judgements and pairs are of questions; give these, too"),
        ("d.npz --questions q.npy --pairs far.tsv", "pairs name none of the questions"),
        (
            "d.npz --questions q.npy --pairs qrels.tsv --similarity euclidean",
            "--similarity euclidean: pairs teach cosines",
        ),
        ("d.npz --quality much", "--quality much: is no percentage above 0 and up to 100"),
        ("d.npz --quality 101%", "--quality 101%: is no percentage above 0 and up to 100"),
        ("d.npz --plot plot.jpg", "plot.jpg: a plot ends in .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_measured_is_one_line(files, capsys, words, says):
    np.save(files / "narrow.npy", np.ones((3, 2)))
    np.save(files / "bad.npy", np.array([[1.0, 2.0], [0.0, 0.0]]))
    np.save(files / "one.npy", np.ones((1, 32)))
    np.save(files / "none.npy", np.ones((0, 32)))
    np.save(files / "equal.npy", np.ones((50, 32)))
    (files / "empty.npy").touch()
    (files / "empty.jsonl").touch()
    (files / "bad.tsv").write_text("q1\n")
    (files / "far.tsv").write_text("q1\t1\n")
    places = [files / word if "." in word else word for word in words.split()]
    assert_refused(capsys, "compress", *places, says=says)


@pytest.mark.parametrize(
    ("keep", "similarity", "bits", "second"),
    [("90", "cosine", 16, True), ("90", "euclidean", 16, True), ("20", "cosine", 8, False)],
)
def test_the_code_that_is_named_becomes_a_store(files, capsys, keep, similarity, bits, second):
    words = ("compress", files / "d.npz", "--bits", bits, "--no-centred", "--quality", keep)
    out = files / "my.store"
    found = run_json(capsys, *words, "--similarity", similarity, "--out", out)
    (chosen,) = [code for code in found["codes"] if code["name"] == found["chosen"]]
    assert (chosen["second"] is not None) == second
    vectors = np.load(files / "d.npz")["vectors"]
    options = {"bits": bits, "second": chosen["second"], "similarity": similarity}
    compressor = ch.compress(vectors, **options)
    with ch.open_store(out) as store:
        assert (len(store), store.n_bits, store.projected) == (400, bits, second)
        ids, codes = store.codes("vector")
        np.testing.assert_array_equal(codes, compressor.encode(vectors).codes[list(map(int, ids))])
        hits = search_vectors(store, np.load(files / "q.npy"), SearchOptions(k=10))
    expected = compressor.search(np.load(files / "q.npy"), compressor.encode(vectors), k=10)
    if second:
        for answers, rows, scores in zip(hits, expected.rows, expected.scores, strict=True):
            assert [int(hit.id) for hit in answers] == rows.tolist()
            np.testing.assert_allclose([hit.similarity for hit in answers], scores, rtol=1e-4)


def test_a_store_is_refused_before_anything_is_measured_and_where_no_code_is_good(files, capsys):
    words = ("compress", files / "d.npz", "--bits", 8)
    assert_refused(capsys, *words, "--out", files, says="holds ")
    assert_refused(
        capsys, *words, "--out", "postgresql:///db", says="keeps no model; make a store in a folder"
    )
    np.save(files / "noise.npy", np.random.default_rng(1).normal(size=(400, 32)))
    words = ("compress", files / "noise.npy", "--bits", 8, "--first", 1, "--quality", 100)
    says = "no code keeps enough, so no store is made; give --quality less"
    assert run_command(*words, "--out", files / "none.store") == 2
    assert says in capsys.readouterr().err
    assert not (files / "none.store").exists()


def test_the_model_of_a_store_encodes_further_vectors(files, capsys):
    run_text(capsys, "index", "create", files / "s", files / "d.npz", "--bits", 16)
    words = ("encode", files / "s", "--data", files / "q.npy", "--out", files / "codes.parquet")
    assert "20 items, 16 bits, vector codes" in run_text(capsys, *words)
    expected = ch.load_model(files / "s").encode("vector", np.load(files / "q.npy"))
    made = ch.CodeSet.load(files / "codes.parquet")
    np.testing.assert_array_equal(made.codes["vector"], expected)
    (files / "t.csv").write_text("id,text\na,a dog\n")
    words = ("encode", files / "s", "--data", files / "t.csv", "--out", files / "none.parquet")
    says = "the items have texts, this model encodes vectors; there is nothing to encode"
    assert_refused(capsys, *words, says=says)
