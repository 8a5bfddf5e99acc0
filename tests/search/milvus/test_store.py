"""What is special about stores in Milvus; what all stores promise is in `test_store_contract`."""

import subprocess
import sys

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymilvus import DataType, MilvusClient, MilvusException
from tests.search.lite import lite_address, lite_file

import channelhash as ch
from channelhash.errors import InputError, JobError
from channelhash.search import open_store
from channelhash.search.filters import parse_filter
from channelhash.search.milvus import address as milvus_address
from channelhash.search.milvus import collection as milvus_collection
from channelhash.search.milvus import lite as milvus_lite
from channelhash.search.milvus import store as milvus
from channelhash.search.milvus.address import Index, parse_address
from channelhash.search.milvus.filters import server_dialect, to_milvus
from channelhash.search.milvus.rows import MAX_LABELS, MAX_METADATA


def codes_of(n: int, seed: int = 0) -> np.ndarray:
    return ch.codes.pack(np.random.default_rng(seed).random((n, 12)) < 0.5)


@pytest.fixture
def store(request):
    opened = open_store(lite_address(request.node.nodeid), n_bits=12)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("text", "uri", "collection", "index"),
    [
        ("milvus+http://host:19530/c", "http://host:19530", "c", None),
        ("milvus+https://host:1/c?index=BIN_FLAT", "https://host:1", "c", Index()),
        ("milvus+http://h:1/c?index=BIN_IVF_FLAT&nlist=8", "http://h:1", "c", Index("BIN_IVF_FLAT", 8, 8)),
        ("milvus+http://h:1/c?index=BIN_IVF_FLAT&nprobe=3", "http://h:1", "c", Index("BIN_IVF_FLAT", 1024, 3)),
        ("milvus+/tmp/a.db", "/tmp/a.db", "channelhash", None),
        ("milvus+/tmp/a.db/c", "/tmp/a.db", "c", None),
    ],
)
def test_addresses(text, uri, collection, index):
    address = parse_address(text)
    assert (address.text, address.uri, address.collection, address.index) == (text, uri, collection, index)
    assert address.lite == text.startswith("milvus+/")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("milvus+http://host:19530", "COLLECTION"),
        ("milvus+http://host/c", "HOST:PORT"),
        ("milvus+http://host:many/c", "HOST:PORT"),
        ("milvus+host:19530/c", "write it as"),
        ("milvus+http://h:1/c?indx=BIN_FLAT", "did you mean 'index'"),
        ("milvus+http://h:1/c?index=HNSW", "BIN_FLAT .exact. or BIN_IVF_FLAT"),
        ("milvus+http://h:1/c?index=BIN_FLAT&nlist=3", "leave it out"),
        ("milvus+http://h:1/c?index=BIN_IVF_FLAT&nlist=0", "nlist is '0'"),
        ("milvus+http://h:1/c?index=BIN_IVF_FLAT&nlist=4&nprobe=5", "from 1 to 4"),
        ("milvus+http://h:1/a-b", "no name of a collection"),
        ("milvus+/tmp/a.db/a/b", "write it as"),
        ("milvus+/tmp/a b.db", "no name for milvus-lite"),
        ("milvus+/no/such/folder/a.db", "make it first"),
    ],
)
def test_addresses_that_are_refused(text, message):
    with pytest.raises(InputError, match=message) as refused:
        parse_address(text)
    assert "\n" not in str(refused.value)


def test_a_token_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(InputError, match="MILVUS_TOKEN") as refused:
        parse_address("milvus+http://root:secret@host:19530/c")
    assert "secret" not in str(refused.value)


def test_the_token_comes_from_the_environment(monkeypatch):
    given_to_client = {}
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    monkeypatch.setattr("pymilvus.MilvusClient", lambda **options: given_to_client.update(options))
    milvus_address.connect(parse_address("milvus+http://host:19530/c"))
    assert given_to_client["uri"] == "http://host:19530"
    assert given_to_client["token"] == "root:secret"


def test_a_server_that_does_not_answer(monkeypatch, capfd):
    monkeypatch.setattr(milvus_address, "_CONNECT_SECONDS", 0.2)
    with pytest.raises(InputError, match="is the server there") as refused:
        open_store("milvus+http://127.0.0.1:1/c")
    assert "\n" not in str(refused.value)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(("package", "extra"), [("pymilvus", "milvus"), ("milvus_lite", "milvus-lite")])
def test_without_its_packages(package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"pip install 'channelhash\[{extra}\]'"):
        open_store(lite_address("none"))


ITEMS = {
    f"i{n}": {
        "year": 1990 + n % 20,
        "score": n / 4 - 3,
        "count": n if n % 3 else n / 1,
        "sharp": n % 2 == 0,
        "labels": ["dog"] * (n % 2) + ["it's"] * (n % 3 == 0),
        "text": f"sea.{n}\\ [50%]",
    }
    if n % 5
    else {"year": "1990"}
    for n in range(40)
}


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A store in a folder and one in Milvus, of the same items."""
    stores = [
        open_store(tmp_path_factory.mktemp("both") / "store", n_bits=12),
        open_store(lite_address("both"), n_bits=12),
    ]
    for opened in stores:
        opened.add(list(ITEMS), codes_of(len(ITEMS)), metadata=list(ITEMS.values()))
    yield stores
    for opened in stores:
        opened.close()


@pytest.mark.parametrize(
    "where",
    [
        "label IS NOT NULL",
        "NOT label IN ('it''s', 'dog')",
        "year = 1990",
        "year <> 1990",
        "NOT year = '1990'",
        "year = '1990' OR year > 2005",
        "year NOT BETWEEN 1992 AND 2000",
        "year IN (1991, 1992.0, 7.5)",
        "year NOT IN (1991, 1992)",
        "count = 9 OR count = 8.0",
        "score > -1e-3 AND score <= 2",
        "sharp <> TRUE",
        "NOT sharp IN (TRUE)",
        "sharp IN (TRUE, FALSE)",
        "text LIKE '%'",
        "text LIKE 'sea.1%'",
        "text LIKE '%\\ [50%]'",
        "text LIKE '%.1_\\%'",
        "NOT text LIKE '%1%[%'",
        "text LIKE 'sea'",
        "text >= 'sea.2' AND text NOT IN ('sea.21\\ [50%]')",
        "id LIKE 'i_' AND NOT id LIKE 'i1%'",
        "id IS NULL OR id BETWEEN 'i20' AND 'i29'",
        "NOT (label = 'dog' AND (year > 1995 OR text LIKE '%1%'))",
        "count IS NULL",
    ],
)
def test_a_filter_means_the_same_as_in_a_folder(both, where):
    embedded, cluster = both
    assert cluster.ids(where) == embedded.ids(where)


def test_a_filter_comes_before_the_ranking_as_in_a_folder(both):
    queries = codes_of(3, seed=1)
    everything = [opened.search(queries, 40, where="sharp = TRUE AND NOT label = 'dog'") for opened in both]
    assert everything[0].ids == everything[1].ids
    near = [opened.search_radius(queries, 4, where="year < 2000") for opened in both]
    assert near[0].ids == near[1].ids


@pytest.mark.parametrize("where", ["label LIKE 'd%'", "label <> 'dog'", "label > 'a'"])
def test_labels_are_compared_by_equality_alone(both, where):
    with pytest.raises(InputError, match="= and IN only"):
        both[1].ids(where)


def test_milvus_lite_cannot_compare_with_control_characters(both):
    with pytest.raises(InputError, match="control characters"):
        both[1].ids("text = 'a\nb'")


@pytest.mark.parametrize(
    ("where", "expression"),
    [
        ("text = 'it''s \"x\"\n\\'", r'(metadata["text"] == "it' + "'" + r's \"x\"\n\\")'),
        ("NOT label = 'dog'", '(not (array_contains(labels, "dog")))'),
        ("text LIKE '50\\_%'", r'(metadata["text"] like "50\\\\_%")'),
        ("text NOT LIKE '%a'", '(metadata["text"] >= "" and not (metadata["text"] like "%a"))'),
        ("id LIKE 'a''%'", '(id like "a\'%")'),
        ("year <> 3 OR id = 'a'", '(((metadata["year"] < 3 or metadata["year"] > 3)) or (id == "a"))'),
        ("year IS NULL", '(keys not in ["[\\"a\\", \\"year\\"]"])'),
        ("text IS NULL", '(keys != "")'),
        ("id IS NULL", '(keys == "")'),
    ],
)
def test_expressions_for_a_server(where, expression):
    sets = ['["a", "year"]', '["a"]']
    assert to_milvus(parse_filter(where, ["a", "year"]), server_dialect(sets)) == expression


@given(st.text(max_size=6), st.text(max_size=6))
def test_ids_of_milvus_lite_keep_their_order(a, b):
    assert milvus_lite.item_id(milvus_lite.stored_id(a)) == a
    assert (milvus_lite.stored_id(a).encode() < milvus_lite.stored_id(b).encode()) == (a.encode() < b.encode())
    assert not any(character < " " or character == "'" for character in milvus_lite.stored_id(a))


def test_more_answers_than_milvus_returns(store, monkeypatch):
    store.add([f"{n}" for n in range(6)], codes_of(6))
    monkeypatch.setattr(milvus, "MAX_ANSWERS", 5)
    with pytest.raises(InputError, match="k is 6; Milvus returns at most 5"):
        store.search(codes_of(1), 6)
    with pytest.raises(InputError, match="limit is 6"):
        store.search_radius(codes_of(1), 3, limit=6)
    with pytest.raises(InputError, match="query 0 has 5 items or more within 12 bits"):
        store.search_radius(codes_of(1), 12)
    assert len(store.search_radius(codes_of(1), 12, limit=5).ids[0]) == 5


def test_another_code_length_or_model_is_refused(store):
    store.add(["a"], codes_of(1))
    for options, message in [(dict(n_bits=16), "12 bits, not 16"), (dict(model="x"), "an unknown model")]:
        with pytest.raises(InputError, match=message):
            open_store(store.address, **options)
    again = open_store(store.address)
    assert (again.n_bits, again.model, again.modalities) == (12, "", ("image",))
    again.close()


def test_a_collection_of_somebody_else_is_refused():
    address = parse_address(lite_address("foreign"))
    client = milvus_address.connect(address)
    client.create_collection(address.collection, dimension=4)
    with pytest.raises(InputError, match="not made by channelhash"):
        open_store(address.text)
    client.close()


def test_a_collection_in_another_format_is_refused(store, monkeypatch):
    store.add(["a"], codes_of(1))
    monkeypatch.setattr(milvus_collection, "_FORMAT", "channelhash 9")
    with pytest.raises(InputError, match="this version reads 'channelhash 9'; push it again"):
        open_store(store.address)


def test_a_modality_that_the_collection_has_no_field_for(store):
    store.add(["a"], codes_of(1), "sound")
    assert store.modalities == ("sound",)
    with pytest.raises(InputError, match="not for smell"):
        store.add(["b"], codes_of(1), "smell")


@pytest.mark.parametrize(
    ("name", "metadata", "message"),
    [
        ("x" * 65_536, {}, "id of 65,536 bytes"),
        ("a", {"text": "x" * MAX_METADATA}, "bytes of metadata"),
        ("a", {"labels": [str(n) for n in range(MAX_LABELS + 1)]}, "4,097 labels"),
        ("a", {"labels": ["x" * 65_536]}, "label 'xxx.* of 65,536 bytes"),
    ],
)
def test_what_is_too_large_for_milvus(store, name, metadata, message):
    with pytest.raises(InputError, match=message):
        store.add(["b", name], codes_of(2), metadata=[{}, metadata])
    assert len(store) == 0


def test_an_error_between_two_requests_says_how_far_it_came(store, monkeypatch):
    monkeypatch.setattr(milvus_collection, "ROWS", 3)
    store.add(["first"], codes_of(1))
    upsert, calls = MilvusClient.upsert, []

    def fails_the_second_time(self, *arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise MilvusException(message="the disk\nis full")
        return upsert(self, *arguments, **options)

    monkeypatch.setattr(MilvusClient, "upsert", fails_the_second_time)
    names = [f"n{n}" for n in range(7)]
    with pytest.raises(JobError, match="after 3 of 7 items were written: Milvus says: the disk is full"):
        store.add(names, codes_of(7))
    assert len(store) == 4
    store.upsert(names, codes_of(7))
    assert len(store) == 8


def test_no_answer_in_time_is_told_in_one_line(store, monkeypatch):
    store.add(["a"], codes_of(1))

    class Late(grpc.RpcError):
        def code(self):
            return grpc.StatusCode.DEADLINE_EXCEEDED

    def waits_in_vain(self, *arguments, **options):
        raise Late

    monkeypatch.setattr(MilvusClient, "query", waits_in_vain)
    with pytest.raises(JobError, match=r"count: no answer .DEADLINE_EXCEEDED.; try again"):
        len(store)


class Server:
    """Stands for a server: notes what it is asked."""

    def __init__(self) -> None:
        self.made: dict = {}
        self.asked: dict = {}

    create_schema = staticmethod(MilvusClient.create_schema)
    prepare_index_params = staticmethod(MilvusClient.prepare_index_params)

    def has_collection(self, name, timeout):
        return bool(self.made)

    def create_collection(self, name, **options):
        self.made = options

    def create_index(self, name, indexes, sync):
        assert not sync  # which waits half a second for each index
        self.made["index_params"] = indexes

    def describe_collection(self, name, timeout):
        schema = self.made["schema"].to_dict()
        return {"description": schema["description"], "fields": schema["fields"]}

    def load_collection(self, name, timeout):
        pass

    def upsert(self, name, rows, timeout):
        pass

    def query(self, name, filter, **options):
        return [{"id": "a"}]

    def search(self, name, **options):
        self.asked = options
        return [[{"id": "b", "distance": 1.0}, {"id": "a", "distance": 1.0}]]


def test_what_a_server_is_asked():
    server = Server()
    address = parse_address("milvus+http://h:1/c?index=BIN_IVF_FLAT&nlist=8&nprobe=2")
    opened = milvus.MilvusStore(address, server, n_bits=12, model="m")
    server.query = lambda name, filter, **options: []
    opened.add(["it's"], codes_of(1))
    indexes = {index.field_name: index.to_dict() for index in server.made["index_params"]}
    assert {name: index["index_type"] for name, index in indexes.items()} == {
        "code_image": "BIN_IVF_FLAT",
        "code_text": "BIN_IVF_FLAT",
        "keys": "INVERTED",
        "labels": "INVERTED",
    }
    assert indexes["code_image"]["metric_type"] == "HAMMING"
    assert indexes["code_image"]["nlist"] == 8
    fields = {field["name"]: field for field in server.made["schema"].to_dict()["fields"]}
    assert (fields["code_image"]["type"], fields["code_image"]["params"]) == (DataType.BINARY_VECTOR, {"dim": 16})
    assert server.made["consistency_level"] == "Strong"

    del server.query
    answers = opened.search_radius(codes_of(1), 3, "image")
    assert answers.ids == [["a", "b"]]
    assert server.asked["search_params"] == {"metric_type": "HAMMING", "params": {"radius": 4, "nprobe": 2}}
    assert server.asked["filter"] == "has_image == true"
    assert server.asked["consistency_level"] == "Strong"

    again = milvus.MilvusStore(parse_address("milvus+http://h:1/c"), server)
    assert (again.n_bits, again.model) == (12, "m")
    with pytest.raises(InputError, match="indexed by BIN_IVF_FLAT with nlist=8"):
        milvus.MilvusStore(parse_address("milvus+http://h:1/c?index=BIN_FLAT"), server)


def test_the_file_of_a_running_milvus_lite_cannot_be_opened_by_another_process():
    open_store(lite_address("busy")).close()
    program = "import sys, channelhash; channelhash.open_store(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, f"milvus+{lite_file()}/x"], capture_output=True, text=True, timeout=60
    )
    assert "is another process using the file?" in done.stderr
