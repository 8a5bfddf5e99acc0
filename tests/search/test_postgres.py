"""What a store in PostgreSQL does beyond what is promised of all stores, also in a database as
others host it.
"""

import os
import signal
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import quote, urlsplit, urlunsplit

import numpy as np
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.search.contract import random_codes
from tests.search.servers import database, postgres_address

import channelhash as ch
from channelhash.codes.stage import Stage
from channelhash.errors import InputError, JobError
from channelhash.lab.brute_force import nearest
from channelhash.search.postgres_connections import parse_address
from refusals import check_refusal, refusal

N = 3000
opened, codes = partial(ch.open_store, n_bits=64), partial(random_codes, n_bits=64)


@pytest.fixture
def address(tmp_path) -> str:
    return postgres_address(tmp_path)


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> str:
    """The address of a store with items."""
    address = postgres_address(tmp_path_factory.mktemp("full"))
    with opened(address) as store:
        store.add(
            [f"{row:05}" for row in range(N)], codes(N), metadata=[{"row": row} for row in range(N)]
        )
    return address


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("store=Photos", "a name of lower-case letters"),
        ("store=public", "PostgreSQL's own"),
        ("store=pg_x", "PostgreSQL's own"),
        ("index=ivf", "hnsw"),
        ("ef_search=10", "belongs to index=hnsw"),
        ("index=hnsw&ef_search=1001", "ef_search: .* less than or equal to 1000"),
        ("index=hnsw&ef_search=ten", "ef_search: .* valid integer"),
        ("host=/nowhere", "cannot be opened .* is the server there"),
        ("index=hnsw&nonsense=1", "cannot be opened .*nonsense"),
    ],
)
def test_an_address_is_refused_in_one_line(options, message):
    check_refusal(message, ch.open_store, f"postgresql://postgres@/postgres?{options}")


#: Addresses of libpq whose host is a socket; S is its folder, percent-encoded H.
SOCKETS = (
    "postgresql://postgres@/postgres?host=S",
    "postgresql:///postgres?host=S&user=postgres",
    "postgresql:///?host=S&user=postgres&dbname=postgres",
    "postgresql://?host=S&user=postgres&dbname=postgres",
    "postgresql://postgres@H/postgres",
    "postgresql://postgres@H:5432/postgres?application_name=a%20b",
    "postgresql://postgres@/postgres?host=/nowhere,S",
    "postgresql://postgres@%2Fnowhere,H/postgres",
    "postgresql:///postgres?host=S&user=postgres&options=-c%20work_mem%3D8MB",
    "postgresql:///postgres?user=postgres",
    "postgresql:///?service=ours",
)


@pytest.mark.parametrize("place", SOCKETS)
def test_a_server_is_reached_by_its_socket(place, tmp_path, monkeypatch):
    folder = conninfo_to_dict(database())["host"]
    if "S" not in place and "H" not in place:
        (tmp_path / "services").write_text(
            f"[ours]\nhost={folder}\nuser=postgres\ndbname=postgres\n"
        )
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        monkeypatch.setenv("PGHOST", folder)
    place = place.replace("S", folder).replace("H", quote(folder, safe=""))
    schema = parse_address(postgres_address(tmp_path))[1]
    address = f"{place}{'&' if '?' in place else '?'}store={schema}"
    assert conninfo_to_dict(parse_address(address)[0]) == conninfo_to_dict(place)
    with opened(address) as store:
        store.add(["a"], codes(1))
        assert store.search(codes(1), k=1).ids == [["a"]]


@pytest.mark.parametrize(
    "rest",
    ["/d", "", "/", "h/d", "h1:1,h2:2/d?target_session_attrs=any", "u@[::1]:5/d", "u@h/d#e",
     "/d?keepalives=1&options=-c%20a%3Db%2Bc", "/d%2Fe?fallback_application_name="],
)  # fmt: skip
@pytest.mark.parametrize("own", ["", "store=a", "index=hnsw&ef_search=50", "store=a&index=hnsw"])
def test_libpq_gets_all_that_is_not_the_store_s(rest, own):
    address = f"postgresql://{rest}"
    ours = f"{address}{('&' if '?' in address else '?') if own else ''}{own}"
    assert conninfo_to_dict(parse_address(ours)[0]) == conninfo_to_dict(address)


def test_what_is_there_is_opened_as_it_was_made(full):
    check_refusal("codes of 64 bits, not 32", ch.open_store, full, n_bits=32)
    check_refusal("keeps no projections", ch.open_store, full, stage=Stage(16))
    check_refusal("an unknown model", ch.open_store, full, model="a1b2")


def test_a_foreign_schema_is_left_alone(address):
    schema = parse_address(address)[1]
    command(at(), f"CREATE SCHEMA {schema} CREATE TABLE other ()")
    check_refusal("was not made by channelhash", ch.open_store, address)
    facts = "'channelhash postgres 9' AS format, 8 AS n_bits, '' AS model, 0 AS projection_bytes, '' AS stage_name"
    command(at(), f"CREATE TABLE {schema}.facts AS SELECT {facts}")
    check_refusal("'channelhash postgres 9', this version reads", ch.open_store, address)


@pytest.mark.parametrize("name", ["a\0", "x" * 2601])
def test_an_id_that_postgresql_cannot_keep_is_refused_and_not_there(address, name):
    with opened(address) as store:
        check_refusal(
            "holds a NUL or is longer than 2,600 bytes", store.add, ["fine", name], codes(2)
        )
        assert len(store) == 0
        store.add(["fine"], codes(1))
        assert name not in store
        assert store.delete([name]) == 0
        store.add(["x" * 2600], codes(1))
        assert "x" * 2600 in store


def test_a_refused_write_leaves_nothing_of_it(address):
    with opened(address) as store:
        store.add(["a"], codes(1), metadata=[{"year": 1}])
        version = store.version
        with pytest.raises(InputError, match="too long a name"):
            store.upsert(
                ["a", "b"],
                {"image": codes(2), "é" * 50: codes(2)},
                metadata=[{"year": 2}, {"month": 3}],
            )
        assert (store.version, store.ids(), store.get(["a"])[0].metadata) == (
            version,
            ["a"],
            {"year": 1},
        )
        check_refusal("unknown key 'month'", store.ids, "month = 3")


def test_those_who_make_a_store_and_add_the_same_item_at_a_time(address):
    with opened(address, n_bits=64) as store:
        refused, barrier = [], threading.Barrier(4)

        def add(seed: int) -> None:
            with opened(address) as other:
                barrier.wait()
                try:
                    other.add(["a", f"only {seed}"], codes(2, seed=seed))
                except InputError as error:
                    refused.append(str(error))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(add, range(4)))
        assert len(refused) == 3
        assert all("'a' has a code for image already" in line for line in refused)
        assert len(store) == 2


def test_connections_that_were_lost_are_replaced_and_a_failing_statement_is_one_line(full):
    with opened(full) as store:
        assert len(store) == N
        ended = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
            "'channelhash'"
        )
        assert all(done for (done,) in command(at(), ended))
        assert len(store) == N
        schema = parse_address(full)[1]
        command(at(), f"ALTER TABLE {schema}.items RENAME TO away")
        try:
            check_refusal("does not exist", store.ids, error=JobError)
        finally:
            command(at(), f"ALTER TABLE {schema}.away RENAME TO items")
        assert len(store.ids()) == N


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_is_refused_and_leaves_the_connections_of_its_parent_alone(full):
    with opened(full) as store:
        assert len(store) == N
        child = os.fork()
        if child == 0:
            line = refusal(store.ids, error=JobError)
            store.close()
            os._exit(
                0
                if "was opened before this process was forked; open it in each process" in line
                else 1
            )
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(store) == N


def test_a_killed_writer_leaves_whole_calls(address):
    program = """
import sys, numpy, channelhash
store = channelhash.open_store(sys.argv[1], n_bits=64)
for call in range(10**6):
    ids = [f"{call}-{row}" for row in range(50)]
    store.add(ids, numpy.zeros((50, 8), numpy.uint8), metadata=[{"call": call}] * 50)
    print(call, flush=True)
"""
    arguments = [sys.executable, "-W", "ignore", "-c", program, address]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
        said = [int(writer.stdout.readline()) for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().split()]
    with opened(address) as store:
        calls = len(store) // 50
        assert calls in (len(said), len(said) + 1)
        assert store.ids() == sorted(f"{call}-{row}" for call in range(calls) for row in range(50))
        assert len(store.ids(f"call < {calls}")) == 50 * calls


def test_hnsw_is_asked_where_the_address_says_so_and_nowhere_else(full):
    queries = codes(20, seed=1)
    expected = [
        match.distances.tolist()
        for match in nearest(queries, codes(N), [f"{row:05}" for row in range(N)], 10)
    ]
    with opened(f"{full}&index=hnsw") as store:
        found = store.search(queries, 10)
        assert store.info()["index"] == "hnsw"
        assert (
            np.mean([a == b.tolist() for a, b in zip(expected, found.distances, strict=True)])
        ) > 0.8
        filtered = store.search(queries, 10, where="row < 30")
        assert all(len(ids) == 10 and max(ids) < "00030" for ids in filtered.ids)
    with opened(f"{full}&index=hnsw&ef_search=1") as store:
        command(at(), f"ANALYZE {parse_address(full)[1]}.items")
        short = store.search(queries, 10)
        # the index was asked, and looked at little
        assert [row.tolist() for row in short.distances] != expected
        pairs = [
            sorted(zip(*found, strict=True))
            for found in zip(short.distances, short.ids, strict=True)
        ]
        assert short.ids == [[name for _, name in found] for found in pairs]
    with opened(full) as store:  # although there is an index now
        assert [row.tolist() for row in store.search(queries, 10).distances] == expected
        assert store.info()["index"] == "none"


def test_hnsw_finds_an_item_that_was_added_later(full):
    """The new item shares the code of one that the index finds: HNSW keeps both in one node."""
    with opened(f"{full}&index=hnsw&ef_search=40") as store:  # less than an insertion looks at
        alone = store.search(codes(50), 1)
        row = next(row for row in range(50) if alone.ids[row] == [f"{row:05}"])
        store.add(["new"], codes(50)[row : row + 1])
        try:
            found = store.search(codes(50)[row : row + 1], 2)
        finally:
            store.delete(["new"])
        assert (found.ids, found.distances[0].tolist()) == ([[f"{row:05}", "new"]], [0, 0])


CODES = np.array([[0, 0], [0, 7], [255, 255]], np.uint8)


def at(name: str = "postgres", user: str = "postgres", **options: str) -> str:
    parts = urlsplit(database())
    query = "&".join([parts.query, *(f"{key}={value}" for key, value in options.items())])
    return urlunsplit(parts._replace(netloc=f"{user}@", path=f"/{name}", query=query))


def command(address: str, *commands: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        for command in commands:
            cursor = connection.execute(command)
        return cursor.fetchall() if cursor.description else []


def grant(schema: str, user: str, rights: str) -> None:
    tables = f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema} TO {user}"
    command(at(), f"GRANT USAGE ON SCHEMA {schema} TO {user}", tables)


def new_name() -> str:
    return f"s{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_database():
    names = []

    def make(encoding: str = "UTF8") -> str:
        names.append(new_name())
        how = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        command(at(), f"CREATE DATABASE {names[-1]} {how}")
        return names[-1]

    yield make
    for name in names:
        command(at(), f"DROP DATABASE {name} (FORCE)")


@pytest.fixture
def user():
    name = new_name()
    command(at(), f"CREATE ROLE {name} LOGIN")
    yield name
    command(at(), f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "SQL_ASCII"])
def test_strings_come_back_from_every_encoding_or_are_refused(new_database, encoding):
    with ch.open_store(at(new_database(encoding)), n_bits=16) as store:
        metadata = [
            {"labels": ["café", "ß"], "text": text}
            for text in ("naïve", "œ" if encoding != "LATIN1" else "þ")
        ]
        store.add(["é", "ÿ"], CODES[:2], metadata=metadata)
        assert [item.metadata for item in store.get(["é", "ÿ"])] == metadata
        assert store.ids("label = 'café' AND text = 'naïve'") == ["é"]
        assert store.label_counts() == {"café": 2, "ß": 2}
        if encoding == "SQL_ASCII":
            store.add(["漢"], CODES[2:])
            assert "漢" in store
        else:
            for ids, labels in ((["漢"], ["a"]), (["a"], ["漢"])):
                says = f"\"{encoding}\"; keep .* ENCODING 'UTF8'"
                check_refusal(says, store.add, ids, CODES[2:], metadata=[{"labels": labels}])
            assert store.ids() == ["é", "ÿ"]


def test_strings_are_ordered_by_code_points_in_every_encoding(new_database):
    with ch.open_store(at(new_database("WIN1252")), n_bits=16) as store:
        ids = ["Z", "a", "é", "Œ", "€"]  # of which the last two have the lowest bytes beyond ASCII
        store.add(
            ids,
            np.zeros((5, 2), np.uint8),
            metadata=[{"text": name, "labels": [name]} for name in ids],
        )
        assert store.search(CODES[:1], 4).ids == [ids[:4]]
        assert store.ids() == store.codes()[0] == list(store.label_counts()) == ids
        assert (
            store.ids("text > 'é'")
            == store.ids("label > 'é'")
            == store.ids("text BETWEEN 'Œ' AND '€'")
            == ids[3:]
        )


@pytest.mark.parametrize("options", [{}, {"index": "hnsw"}])
def test_pgvector_may_be_in_any_schema(new_database, options):
    name = new_database()
    command(at(name), 'CREATE SCHEMA "ext%s"', 'CREATE EXTENSION vector SCHEMA "ext%s"')
    with ch.open_store(at(name, **options), n_bits=16, stage=Stage(16)) as store:
        outputs = np.where(np.unpackbits(CODES, axis=1), 1.0, -1.0)
        store.add(
            ["a", "b", "c"],
            CODES,
            metadata=[{"year": year} for year in range(3)],
            projections=outputs,
        )
        assert store.search(CODES[:1], 2).ids == [["a", "b"]]
        assert store.search(CODES[:1], 2, where="year > 0").ids == [["b", "c"]]
        assert store.search_radius(CODES[:1], 3).ids == [["a", "b"]]
        assert store.search_projections(outputs[:1], 2).ids == [["a", "b"]]


def test_a_database_that_lost_pgvector_is_refused(new_database):
    address = at(new_database())
    with ch.open_store(address, n_bits=16) as store:
        store.add(["a"], CODES[:1])
    command(address.partition("&store")[0], "DROP EXTENSION vector CASCADE")
    check_refusal("has no pgvector any more", ch.open_store, address)


@pytest.fixture(scope="module")
def shared() -> str:
    """The name of a store with items and an index HNSW."""
    name = new_name()
    with ch.open_store(at(store=name, index="hnsw"), n_bits=16) as with_index:
        with_index.add(
            ["a", "b", "c"], CODES, metadata=[{"labels": ["dog"]}, {"labels": ["cat"]}, {}]
        )
    return name


@pytest.mark.parametrize("options", [{}, {"index": "hnsw"}])
def test_a_user_who_may_only_read_does(shared, user, options):
    grant(shared, user, "SELECT")
    store = ch.open_store(at(user=user, store=shared, **options))
    assert (store.writable, store.info()["codes"], store.label_counts()) == (
        False,
        {"image": 3},
        {"cat": 1, "dog": 1},
    )
    assert store.search(CODES[:1], 2).ids == [["a", "b"]]
    assert store.search(CODES[:1], 2, where="label = 'cat'").ids == [["b"]]
    for write in (
        lambda: store.add(["d"], CODES[:1]),
        lambda: store.update(["a"], [{}]),
        lambda: store.delete(["a"]),
    ):
        check_refusal("can only read it; let the owner GRANT INSERT", write)
    store.close()
    assert command(at(), f"SELECT count(*) FROM {shared}.items") == [(3,)]


def test_a_reader_is_refused_an_index_that_is_not_there(user):
    name = new_name()
    with ch.open_store(at(store=name), n_bits=16) as store:
        store.add(["a"], CODES[:1])
    grant(name, user, "SELECT")
    without = at(user=user, store=name, index="hnsw")
    check_refusal("has no index HNSW; open it once as its owner", ch.open_store, without)


def test_a_user_who_may_make_no_tables_writes_items(shared, user):
    grant(shared, user, "SELECT, INSERT, UPDATE, DELETE")
    with ch.open_store(at(user=user, store=shared, index="hnsw")) as store:
        store.add([user], CODES[:1], metadata=[{"labels": ["new"]}])
        assert store.delete([user]) == 1
        check_refusal(
            "must be owner of table items; open it as its owner",
            store.add,
            [user],
            CODES[:1],
            "text",
        )


def test_a_user_who_may_make_no_schema_uses_an_empty_one(user):
    command(at(), "CREATE EXTENSION IF NOT EXISTS vector")
    name = new_name()
    with ch.open_store(at(user=user, store=name), n_bits=16) as store:
        check_refusal(
            f"run: CREATE SCHEMA {name} AUTHORIZATION {user}", store.add, ["a"], CODES[:1]
        )
        command(at(), f"CREATE SCHEMA {name} AUTHORIZATION {user}")
        store.add(["a"], CODES[:1])
        assert store.search(CODES[:1], 1).ids == [["a"]]


def test_hnsw_finds_what_few_items_pass():
    name, n = new_name(), 200
    with ch.open_store(at(store=name), n_bits=16) as store:
        codes = np.random.default_rng(0).integers(0, 128, (n, 2)).astype(np.uint8)
        codes[-5:] = 255
        store.add(
            [f"{row:03}" for row in range(n)],
            codes,
            metadata=[{"rare": row >= n - 5} for row in range(n)],
        )
    options = "-c%20hnsw.max_scan_tuples=20%20-c%20enable_seqscan=off"
    with ch.open_store(at(store=name, index="hnsw", ef_search="10", options=options)) as store:
        rare = [f"{row:03}" for row in range(n - 5, n)]
        assert store.search(np.zeros((2, 2), np.uint8), 5, where="rare = TRUE").ids == [rare, rare]
        assert len(store.search(np.zeros((1, 2), np.uint8), 150).ids[0]) == 150


def test_no_statement_is_prepared_that_a_pool_would_lose(shared):
    with ch.open_store(at(store=shared)) as store:
        for _ in range(8):
            store.search(CODES[:1], 1)
        assert store._rows("SELECT count(*) FROM pg_prepared_statements") == [(0,)]


def test_options_reach_libpq_as_they_are():
    options = "-c%20application_name=a%2Bb%20-c%20work_mem=5MB"
    with ch.open_store(at(store=new_name(), options=options), n_bits=16) as store:
        store.make()
        assert store._rows("SHOW work_mem") == [("5MB",)]
