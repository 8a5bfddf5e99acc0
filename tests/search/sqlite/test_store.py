"""The embedded store: what it keeps on the disk, through kills, other processes, threads and
damage, and its copies.
"""

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.search import adding_until_killed as adding, contract
from tests.search.contract import (
    PROJECTED,
    Expected,
    check_answers,
    check_any_calls,
    check_outputs,
    random_codes,
)
from tests.search.sqlite.damaging import change

import channelhash as ch
from channelhash.codes.stage import Stage
from channelhash.errors import JobError
from channelhash.models import load_model
from channelhash.search import Address, checks, index as code_index
from channelhash.search.index import CodeIndex
from channelhash.search.sqlite import (
    database as items_database,
    folder as store_folder,
    snapshots as layers,
    store as sqlite_store,
)
from channelhash.search.sqlite.check import backup_store, check_store, repair_store
from channelhash.search.sqlite.folder import StoreFolder
from channelhash.search.transfer import push
from channelhash.utils.progress import no_progress, no_stage_progress
from extras import needs
from refusals import check_refusal
from small_stores import small_model


@pytest.fixture
def small_layers(monkeypatch):
    """Snapshots and folded layers after a few items."""
    monkeypatch.setattr(layers, "_LEAST_IN_SNAPSHOT", 6)
    monkeypatch.setattr(layers, "_LEAST_IN_MEMORY", 2)


codes = partial(random_codes, n_bits=16)


def names(n: int, prefix: str = "i") -> list[str]:
    return [f"{prefix}{row}" for row in range(n)]


@pytest.mark.usefixtures("small_layers")
@pytest.mark.parametrize("fewest", [{}, {"_FEWEST_CLUSTERED": 1}], ids=["scan", "clusters"])
def test_any_calls_in_any_order_with_snapshots_all_the_time(fewest, monkeypatch):
    """Filters, deletes, ties by id and layers, whichever way codes are searched."""
    if fewest:
        needs("fast")
    for name, value in {**fewest, "_START": -(1 << 40), "_left_to_numpy": 0}.items():
        monkeypatch.setattr(code_index, name, value)
    made = set()
    create = CodeIndex.__init__

    def note(self, distinct, clusters, n_bits):
        made.add(clusters is not None)
        create(self, distinct, clusters, n_bits)

    monkeypatch.setattr(CodeIndex, "__init__", note)
    check_any_calls(PROJECTED["embedded"])
    assert made == {False, bool(fewest)}


@pytest.mark.parametrize("kills", [12, pytest.param(25, marks=pytest.mark.slow)])
def test_what_was_acknowledged_outlives_a_kill_and_nothing_is_there_by_half(tmp_path, kills):
    command = [sys.executable, "-m", "tests.search.adding_until_killed", str(tmp_path), str(kills)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[3])
    unfinished = set()
    for number in range(kills + 1):
        acknowledged = (tmp_path / f"{number}.acknowledged").read_text().splitlines()
        unfinished.add(len(acknowledged))
        if (tmp_path / str(number) / "store.json").exists():
            assert check_store(tmp_path / str(number)) == []
        check_after_kill(tmp_path / str(number), len(acknowledged))
    assert len(unfinished) > adding.BATCHES  # the kills fell into different calls


def expected_after(n_calls: int) -> Expected:
    """What a store holds after so many calls of `adding.fill`."""
    items = Expected()
    for ids, bits, metadata in map(adding.batch, range(min(n_calls, adding.BATCHES))):
        items.write(ids, {"image": bits, "text": bits}, metadata)
    if n_calls > adding.BATCHES:
        items.write(adding.batch(0)[0], {"image": ~adding.batch(0)[1]}, None)
    if n_calls > adding.BATCHES + 1:
        items.delete(adding.batch(1)[0])
    return items


def check_after_kill(folder: Path, n_acknowledged: int) -> None:
    """What the calls that returned have written is there, and the next one as a whole or not at
    all.
    """
    with ch.open_store(folder, n_bits=adding.N_BITS) as store:
        expected = expected_after(n_acknowledged)
        try:
            contract.check_contents(store, expected)
        except AssertionError:
            expected = expected_after(n_acknowledged + 1)
            contract.check_contents(store, expected)
        more = np.ones((1, adding.N_BITS), dtype=bool)
        store.upsert(["one more"], {"image": ch.codes.pack(more), "text": ch.codes.pack(more)})
        expected.write(["one more"], {"image": more, "text": more}, None)
        for modality in ("image", "text"):
            there = {name: of_item[modality] for name, of_item in expected.codes.items()}
            queries = np.array(list(there.values()))
            found = store.search_radius(ch.codes.pack(queries), 0, modality)
            check_answers(PROJECTED["embedded"], found, queries, there, None, 0)
    assert check_store(folder) == []


@pytest.mark.usefixtures("small_layers")
def test_a_reader_follows_the_snapshots_of_a_writer(tmp_path):
    writer, reader = (ch.open_store(tmp_path / "store", n_bits=16) for _ in range(2))
    packed = codes(60)
    for row in range(0, 60, 3):
        writer.add(names(60)[row : row + 3], packed[row : row + 3])
        writer.upsert([names(60)[row]], packed[row : row + 1])
        for store in (writer, reader) if row % 2 else (reader, writer):
            assert store.search(packed[row : row + 1], 1).distances[0].tolist() == [0]
            assert sorted(store.search_radius(packed[:1], 16).ids[0]) == sorted(names(row + 3))
        assert len([*(tmp_path / "store").glob("snapshot-*")]) == (row > 0)
    writer.close()
    reader.close()


def test_threads_write_and_search_at_once(tmp_path, small_layers):
    with ch.open_store(tmp_path / "store", n_bits=16) as store:
        packed = codes(200)

        def work(first: int) -> None:
            for row in range(first, 200, 4):
                store.add([f"i{row}"], packed[row : row + 1], metadata=[{"row": row}])
                found = store.search_radius(packed[row : row + 1], 0, where=f"row = {row}")
                assert found.ids == [[f"i{row}"]]
                if row % 3 == 0:
                    assert store.delete([f"i{row}"]) == 1

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))  # which raises what any of them has raised
        assert store.ids() == sorted(f"i{row}" for row in range(200) if row % 3)


def test_a_full_disk_is_one_line_and_keeps_what_is_stored(tmp_path):
    with ch.open_store(tmp_path / "store", n_bits=16) as store:
        store.add(["a"], codes(1))
        writer = store._open().writer._connection
        (pages,) = writer.execute("PRAGMA page_count").fetchone()
        writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(
            JobError, match=r"cannot be written \(database or disk is full\); make room on the disk"
        ):
            store.add(["b"], codes(1), metadata=[{"text": "x" * 10**5}])
        assert store.ids() == ["a"]


def test_a_second_writer_waits_and_then_gives_up_in_one_line(tmp_path, monkeypatch):
    folder = tmp_path / "store"
    ch.open_store(folder, n_bits=16).add(["a"], codes(1))
    monkeypatch.setattr(store_folder, "_BUSY_SECONDS", 0.05)
    store = ch.open_store(folder)
    other = sqlite3.connect(folder / "items.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    check_refusal("another process is writing to it", store.add, ["b"], codes(1))
    assert store.search(codes(1)).ids == [["a"]]  # readers do not wait
    other.execute("ROLLBACK")
    store.add(["b"], codes(1))
    assert store.ids() == ["a", "b"]


def test_code_length_and_model_come_from_whoever_makes_it_and_stay(tmp_path):
    folder = tmp_path / "store"
    store = ch.open_store(folder, n_bits=24, model="abc")
    assert store.n_bits == 24
    assert store.model == "abc"
    assert len(store) == 0
    assert not folder.exists()
    late = ch.open_store(folder, n_bits=12)
    store.add(["a"], codes(1, n_bits=24))
    assert store.n_bits == 24
    check_refusal("holds codes of 24 bits, not 12", late.add, ["b"], codes(1))
    assert ch.open_store(folder).model == "abc"
    assert json.loads((folder / "store.json").read_text())["n_bits"] == 24
    check_refusal("24 bits, not 16", ch.open_store, folder, n_bits=16)
    check_refusal("codes of another model", ch.open_store, folder, model="x")
    check_refusal("n_bits is 0", ch.open_store, tmp_path / "new", n_bits=0)


def test_two_processes_that_make_a_store_at_once_agree(tmp_path, monkeypatch):
    first, second = (ch.open_store(tmp_path / "store", n_bits=n_bits) for n_bits in (16, 24))
    check = checks.codes_by_modality

    def check_while_the_other_is_quicker(*arguments: object) -> object:
        checked = check(*arguments)
        monkeypatch.setattr(checks, "codes_by_modality", check)
        first.add(["a"], codes(1))
        return checked

    monkeypatch.setattr(checks, "codes_by_modality", check_while_the_other_is_quicker)
    check_refusal("holds codes of 16 bits, not 24", second.add, ["b"], codes(1, n_bits=24))
    assert first.ids() == ["a"]


def test_a_closed_store_is_not_used(tmp_path):
    store = ch.open_store(tmp_path / "store", n_bits=16)
    store.add(["a"], codes(1))
    store.close()
    store.close()
    check_refusal("closed", store.search, codes(1), error=ValueError)


def test_a_second_run_waits_for_the_first_and_says_so(tmp_path):
    said, order = [], []

    def second() -> None:
        def progress(stage):
            said.append(stage)
            first_may_end.set()
            return no_progress

        with StoreFolder(tmp_path / "store").hold_run(progress):
            order.append("second")

    first_may_end = threading.Event()
    with StoreFolder(tmp_path / "store").hold_run(no_stage_progress):
        other = threading.Thread(target=second)
        other.start()
        assert first_may_end.wait(20)
        order.append("first")
    other.join(20)
    assert order == ["first", "second"]
    assert said == [f"waiting for another command that indexes {tmp_path / 'store'}"]
    assert not (tmp_path / "store").exists()  # neither has made a store


def test_other_folders_and_files_are_left_alone(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.jpg").touch()
    says = r"pictures: holds a\.jpg, but no store; .* `channelhash search .*pictures WORDS`"
    check_refusal(says, ch.open_store, tmp_path / "pictures")
    check_refusal("is a file, neither", ch.open_store, tmp_path / "pictures" / "a.jpg")
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE t (x)")
    check_refusal("not one of a store", items_database.ItemsDatabase, tmp_path / "other.sqlite")
    check_refusal("no store is opened by 'redis://here'", ch.open_store, "redis://here")


def code_set(n: int) -> ch.CodeSet:
    labels = np.arange(n)[:, None] % np.array([2, 3]) == 0
    texts = ["" if row == 0 else f"text {row}" for row in range(n)]
    images = [f"{row}.jpg" for row in range(n)]
    modalities = {"image": codes(n), "text": codes(n, seed=1)}
    return ch.CodeSet(names(n), modalities, labels, 16, ("even", "third"), texts, images, "abc")


def test_a_file_of_codes_is_a_store_to_read(tmp_path):
    needs("parquet")
    codes_of_file = code_set(30)
    codes_of_file.save(tmp_path / "c.parquet")
    store = ch.open_store(tmp_path / "c.parquet")
    assert len(store) == 30
    assert store.n_bits == 16
    assert store.model == "abc"
    assert store.modalities == ("image", "text")
    assert not store.writable
    assert store.model_folder is None
    assert store.search(codes_of_file.codes["text"], 1, "text").distances == [[0]] * 30
    assert store.ids("label = 'third' AND text LIKE 'text 1%'") == ["i12", "i15", "i18"]
    assert store.label_counts() == {"even": 15, "third": 10}
    first, second = store.get(["i0", "i2"])
    assert first.metadata == {"image": "0.jpg", "labels": ["even", "third"]}
    assert second.metadata == {"image": "2.jpg", "text": "text 2", "labels": ["even"]}
    check_refusal("can only be read", store.add, ["x"], codes(1))
    check_refusal("can only be read", store.delete, ["i0"])
    check_refusal("can only be read", store.upsert, [], codes(0))
    check_refusal("16 bits, not 32", ch.open_store, tmp_path / "c.parquet", n_bits=32)
    assert [path.name for path in tmp_path.iterdir()] == ["c.parquet"]
    store.close()


def test_a_run_is_a_store_of_its_retrieval_set(tmp_path):
    needs("parquet")
    (tmp_path / "config.yaml").write_text("data:\nmodel:\nloss:\ntrain:\n")
    check_refusal(
        "this run has no codes yet; write them with `channelhash evaluate", ch.open_store, tmp_path
    )
    code_set(5).save(tmp_path / "codes" / "test-retrieval.parquet")
    store = ch.open_store(tmp_path)
    assert store.ids() == names(5)
    assert store.model_folder == tmp_path
    assert store.address == str(tmp_path)


@pytest.mark.usefixtures("small_layers")
def test_distinct_codes_are_told_where_they_are_known(tmp_path):
    store = ch.open_store(tmp_path / "store", n_bits=16)
    store.add(names(9), codes(3).repeat(3, axis=0))
    assert store.info()["distinct_codes"] == {"image": 3}
    store.delete(["i0"])
    info = store.info()
    assert info["distinct_codes"] == {}
    assert info["codes"] == {"image": 8}
    assert info["items"] == 8
    assert info["bytes"] > 1000


def test_of_many_as_near_as_the_last_those_nearest_to_the_outputs_are_found(tmp_path):
    query = np.array([0.9, -0.1, 0.5, -0.7])
    bits = np.eye(4)[[2] * 100 + [0] * 100 + [1, 3] * 100] > 0
    store = ch.open_store(tmp_path / "s", n_bits=4)
    store.add([f"{row:03}" for row in range(len(bits))], ch.codes.pack(bits))
    there = {f"{row:03}": code for row, code in enumerate(bits)}
    for k in (3, 10, 260):
        found = store.search_outputs(query[None], k)
        check_outputs(found, query[None], there, k, None)
    store.close()


# Copies of stores that others write to.

# Adds batches until it is killed; those whose number is printed are committed.
WRITER = """
import sys
import numpy as np
import channelhash as ch

store = ch.open_store(sys.argv[1], n_bits=16)
for batch in range(10_000):
    ids = [f"{batch:05d}-{row}" for row in range(20)]
    codes = np.full((20, 2), batch % 251, np.uint8)
    store.add(ids, codes, metadata=[{"batch": batch}] * 20)
    print(batch, flush=True)
"""


def test_a_backup_is_a_store_with_the_same_answers(tmp_path):
    store = ch.open_store(tmp_path / "a", n_bits=16)
    store.add(
        names(10), codes(10), metadata=[{"labels": ["dog"], "year": year} for year in range(10)]
    )
    small_model(tmp_path / "a", 16)
    assert backup_store(tmp_path / "a", tmp_path / "deep" / "b")[0] == 10  # while the store is open
    store.delete(["i3"])
    with ch.open_store(tmp_path / "deep" / "b") as copy:
        assert copy.get(copy.ids())[3].metadata == {"labels": ["dog"], "year": 3}
        assert copy.search(codes(10)[3:4], k=1, where="label = 'dog'").ids == [["i3"]]
        copy.add(["b"], codes(1))
    assert load_model(tmp_path / "deep" / "b").n_bits == 16
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["b"]
    assert check_store(tmp_path / "deep" / "b") == []


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_backup_while_another_process_writes_is_what_was_committed_first(tmp_path, rounds):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path / "a"], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout
    try:
        for number in range(rounds):
            committed = int(writer.stdout.readline())
            target = tmp_path / f"b{number}"
            done = backup_store(tmp_path / "a", target)
            with ch.open_store(target) as copy:
                items = copy.get(copy.ids())
            batches = len(items) // 20
            assert done[0] == len(items) == batches * 20
            assert batches > committed
            rows = sorted(range(20), key=str)  # as ids are sorted
            assert [item.id for item in items] == [
                f"{batch:05d}-{row}" for batch in range(batches) for row in rows
            ]
            assert all(item.codes["image"][0] == item.metadata["batch"] % 251 for item in items)
            assert check_store(target) == []
            shutil.rmtree(target)
    finally:
        writer.kill()
        writer.wait()
    assert check_store(tmp_path / "a") == []


def test_nothing_is_left_of_a_backup_that_is_refused(tmp_path):
    with ch.open_store(tmp_path / "a", n_bits=16) as store:
        store.add(names(10), codes(10))
    check_refusal("lies in the store", backup_store, tmp_path / "a", tmp_path / "a" / "c")
    with open(tmp_path / "a" / "items.sqlite", "r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    check_refusal("is damaged", backup_store, tmp_path / "a", tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


# A store that keeps projections: how it is made and opened, and what damage to a projection does.

N, OUTPUT_BITS = 60, 12
NAMES = [f"i{row:02}" for row in range(N)]
OUTPUTS = np.random.default_rng(0).normal(size=(N, OUTPUT_BITS))
CODES = ch.codes.pack(ch.codes.binarize(OUTPUTS))


@pytest.fixture
def folder(tmp_path) -> Path:
    with ch.open_store(tmp_path / "store", OUTPUT_BITS, stage=Stage(OUTPUT_BITS)) as store:
        store.add(NAMES[:40], CODES[:40], projections=OUTPUTS[:40])
        store.add(NAMES[40:], {"text": CODES[40:]}, projections={"text": OUTPUTS[40:]})
    return tmp_path / "store"


def plain_store(folder: Path, *ids: str) -> Path:
    """A store without projections."""
    with ch.open_store(folder, n_bits=OUTPUT_BITS) as store:
        store.add(ids, CODES[: len(ids)])
        assert not store.projected
    return folder


def kept(folder: Path) -> dict[str, dict[str, list[int]]]:
    with ch.open_store(folder) as store:
        rows_of = {item.id: item.projections for item in store.get(store.ids())}
    return {
        name: {modality: row.tolist() for modality, row in rows.items()}
        for name, rows in rows_of.items()
    }


STAGE = Stage(OUTPUT_BITS)
QUANTIZED = STAGE.encode("image", OUTPUTS).tolist()
EXPECTED = {
    name: {"image" if row < 40 else "text": QUANTIZED[row]} for row, name in enumerate(NAMES)
}


def test_whether_a_store_keeps_projections_is_settled_when_it_is_made(folder, tmp_path):
    for stage in (None, STAGE):
        with ch.open_store(folder, stage=stage) as store:
            assert store.projected
            assert store.stage.fingerprint == STAGE.fingerprint
    assert json.loads((folder / "store.json").read_text())["stage"] == STAGE.fingerprint
    check_refusal(
        "keeps other projections", ch.open_store, folder, stage=Stage(12, similarity="inner")
    )
    plain = plain_store(tmp_path / "plain", "a")
    assert json.loads((plain / "store.json").read_text())["projection_bytes"] == 0
    says = "keeps no projections beside its codes; choose another store"
    check_refusal(says, ch.open_store, plain, stage=Stage(OUTPUT_BITS))
    with ch.open_store(folder) as store:
        facts = store.info()
    assert facts["projections"]
    assert facts["bytes_an_item"] == {
        "code": 2,
        "projection": 16,
        "disk": round(facts["bytes"] / N),
    }


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("milvus+http://localhost:1", "keeps no projections; make a store in a folder"),
        ("codes.parquet", "holds codes without projections"),
    ],
)
def test_other_kinds_of_store_keep_no_projections(address, says):
    check_refusal(says, ch.open_store, address, stage=Stage(OUTPUT_BITS))


def test_projections_come_with_every_code_or_with_none(folder, tmp_path):
    with ch.open_store(folder) as store:
        check_refusal(
            "keeps projections; give those of the codes", store.upsert, NAMES[:1], CODES[:1]
        )
        says = "are not the outputs of which the codes are the signs"
        check_refusal(says, store.upsert, NAMES[:1], CODES[:1], projections=-OUTPUTS[:1])
    assert kept(folder) == EXPECTED
    plain = ch.open_store(tmp_path / "plain", n_bits=OUTPUT_BITS)
    check_refusal("keeps no projections", plain.add, NAMES[:1], CODES[:1], projections=OUTPUTS[:1])
    check_refusal("keeps no projections; search its codes", plain.search_projections, OUTPUTS)
    assert len(plain) == 0


def test_all_items_of_a_small_store_and_the_nearest_of_a_large_one_are_scored(folder, monkeypatch):
    with ch.open_store(folder) as store:
        question = np.random.default_rng(1).normal(size=OUTPUT_BITS)
        rows = STAGE.encode("image", OUTPUTS[:40])
        scores = dict(zip(NAMES, STAGE.scores("image", question, rows), strict=False))
        assert store.search_projections(question[None], 5).ids == [
            sorted(scores, key=scores.get)[:-6:-1]
        ]
        monkeypatch.setattr(sqlite_store, "ALL", 39)
        monkeypatch.setattr(sqlite_store, "FIRST", 7)
        nearest = store.search(ch.codes.pack(question[None] >= 0), 7).ids[0]
        assert store.search_projections(question[None], 5).ids == [
            sorted(nearest, key=scores.get)[:-6:-1]
        ]
        few = store.search_projections(question[None], 5, where="id < 'i20'").ids
        assert few == [sorted(NAMES[:20], key=scores.get)[:-6:-1]]


@pytest.mark.parametrize("value", ["x'01020304050607080910111213141516'", "x'01'", "NULL", "5"])
def test_a_damaged_projection_is_found_not_answered_and_lost_in_a_repair(folder, value):
    change(folder, f"UPDATE codes SET projection = {value} WHERE serial = 4")
    assert [str(finding) for finding in check_store(folder)] == [
        "i03: the image code is damaged (row 4)"
    ]
    check_refusal("is damaged", ch.open_store, folder)
    assert [str(finding) for finding in repair_store(folder).lost] == [
        "i03: its image code is lost"
    ]
    assert check_store(folder) == []
    assert kept(folder) == {**EXPECTED, "i03": {}}


@pytest.mark.parametrize("value", ["zeroblob(2000)", "substr(stage, 1, 300)", "NULL", "'text'"])
def test_a_damaged_stage_is_no_stage(folder, value):
    change(folder, f"UPDATE about SET stage = {value}")
    Path(folder, ".writes").unlink(missing_ok=True)
    store = ch.open_store(folder)
    check_refusal("is damaged|not as it was", store.search_projections, OUTPUTS[:1])
    store.close()


def test_a_target_without_projections_gets_the_codes(folder, tmp_path):
    plain = plain_store(tmp_path / "plain", "x")
    pushed = push(Address.parse(folder), Address.parse(plain))
    assert pushed.target_items == N + 1
    assert pushed.without_projections
    assert kept(plain) == {name: {} for name in [*NAMES, "x"]}
    check_refusal(
        "keeps projections; give those of the codes",
        push,
        Address.parse(plain),
        Address.parse(folder),
    )
