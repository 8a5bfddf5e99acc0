"""A store in a database as others host it: its encoding, where pgvector is, what a user may do, a pool in between."""

import uuid
from urllib.parse import urlsplit, urlunsplit

import numpy as np
import psycopg
import pytest
from tests.search.postgres_server import database

import channelhash as ch
from channelhash.errors import InputError
from refusals import check_refusal

CODES = np.array([[0, 0], [0, 7], [255, 255]], np.uint8)


def at(name: str = "postgres", user: str = "postgres", **options: str) -> str:
    parts = urlsplit(database())
    query = "&".join([parts.query, *(f"{key}={value}" for key, value in options.items())])
    return urlunsplit(parts._replace(netloc=f"{user}@", path=f"/{name}", query=query))


def ask(address: str, *commands: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        for command in commands:
            cursor = connection.execute(command)
        return cursor.fetchall() if cursor.description else []


def new_name() -> str:
    return f"s{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_database():
    names = []

    def make(encoding: str = "UTF8") -> str:
        names.append(new_name())
        how = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        ask(at(), f"CREATE DATABASE {names[-1]} {how}")
        return names[-1]

    yield make
    for name in names:
        ask(at(), f"DROP DATABASE {name} (FORCE)")


@pytest.fixture
def user():
    name = new_name()
    ask(at(), f"CREATE ROLE {name} LOGIN")
    yield name
    ask(at(), f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "SQL_ASCII"])
def test_strings_come_back_from_every_encoding_or_are_refused(new_database, encoding):
    with ch.open_store(at(new_database(encoding)), n_bits=16) as store:
        metadata = [{"labels": ["café", "ß"], "text": text} for text in ("naïve", "œ" if encoding != "LATIN1" else "þ")]
        store.add(["é", "ÿ"], CODES[:2], metadata=metadata)
        assert [item.metadata for item in store.get(["é", "ÿ"])] == metadata
        assert store.ids("label = 'café' AND text = 'naïve'") == ["é"]
        assert store.label_counts() == {"café": 2, "ß": 2}
        if encoding == "SQL_ASCII":
            store.add(["漢"], CODES[2:])
            assert "漢" in store
        else:
            for ids, labels in ((["漢"], ["a"]), (["a"], ["漢"])):
                with pytest.raises(InputError, match=f"\"{encoding}\"; keep .* ENCODING 'UTF8'") as refused:
                    store.add(ids, CODES[2:], metadata=[{"labels": labels}])
                assert "\n" not in str(refused.value)
            assert store.ids() == ["é", "ÿ"]


def test_strings_are_ordered_by_code_points_in_every_encoding(new_database):
    with ch.open_store(at(new_database("WIN1252")), n_bits=16) as store:
        ids = ["Z", "a", "é", "Œ", "€"]  # of which the last two have the lowest bytes beyond ASCII
        store.add(ids, np.zeros((5, 2), np.uint8), metadata=[{"text": name, "labels": [name]} for name in ids])
        assert store.search(CODES[:1], 4).ids == [ids[:4]]
        assert store.ids() == store.codes()[0] == list(store.label_counts()) == ids
        assert store.ids("text > 'é'") == store.ids("label > 'é'") == store.ids("text BETWEEN 'Œ' AND '€'") == ids[3:]


@pytest.mark.parametrize("options", [{}, {"index": "hnsw"}])
def test_pgvector_may_be_in_any_schema(new_database, options):
    name = new_database()
    ask(at(name), 'CREATE SCHEMA "ext%s"', 'CREATE EXTENSION vector SCHEMA "ext%s"')
    with ch.open_store(at(name, **options), n_bits=16, projections=True) as store:
        outputs = np.where(np.unpackbits(CODES, axis=1), 1.0, -1.0)
        store.add(["a", "b", "c"], CODES, metadata=[{"year": year} for year in range(3)], projections=outputs)
        assert store.search(CODES[:1], 2).ids == [["a", "b"]]
        assert store.search(CODES[:1], 2, where="year > 0").ids == [["b", "c"]]
        assert store.search_radius(CODES[:1], 3).ids == [["a", "b"]]
        assert store.search_projections(outputs[:1], 2).ids == [["a", "b"]]


def test_a_database_that_lost_pgvector_is_refused(new_database):
    address = at(new_database())
    store = ch.open_store(address, n_bits=16)
    store.add(["a"], CODES[:1])
    store.close()
    ask(address.partition("&store")[0], "DROP EXTENSION vector CASCADE")
    check_refusal("has no pgvector any more", ch.open_store, address)


@pytest.fixture(scope="module")
def shared() -> str:
    """The name of a store with items and an index HNSW."""
    name = new_name()
    with ch.open_store(at(store=name, index="hnsw"), n_bits=16) as with_index:
        with_index.add(["a", "b", "c"], CODES, metadata=[{"labels": ["dog"]}, {"labels": ["cat"]}, {}])
    return name


@pytest.mark.parametrize("options", [{}, {"index": "hnsw"}])
def test_a_user_who_may_only_read_does(shared, user, options):
    ask(at(), f"GRANT USAGE ON SCHEMA {shared} TO {user}", f"GRANT SELECT ON ALL TABLES IN SCHEMA {shared} TO {user}")
    store = ch.open_store(at(user=user, store=shared, **options))
    assert (store.writable, store.info()["codes"], store.label_counts()) == (False, {"image": 3}, {"cat": 1, "dog": 1})
    assert store.search(CODES[:1], 2).ids == [["a", "b"]]
    assert store.search(CODES[:1], 2, where="label = 'cat'").ids == [["b"]]
    for write in (lambda: store.add(["d"], CODES[:1]), lambda: store.update(["a"], [{}]), lambda: store.delete(["a"])):
        check_refusal("can only read it; let the owner GRANT INSERT", write)
    store.close()
    assert ask(at(), f"SELECT count(*) FROM {shared}.items") == [(3,)]


def test_a_reader_is_refused_an_index_that_is_not_there(user):
    name = new_name()
    store = ch.open_store(at(store=name), n_bits=16)
    store.add(["a"], CODES[:1])
    store.close()
    ask(at(), f"GRANT USAGE ON SCHEMA {name} TO {user}", f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {user}")
    with pytest.raises(InputError, match="has no index HNSW; open it once as its owner"):
        ch.open_store(at(user=user, store=name, index="hnsw"))


def test_a_user_who_may_make_no_tables_writes_items(shared, user):
    tables = f"ON ALL TABLES IN SCHEMA {shared} TO {user}"
    ask(at(), f"GRANT USAGE ON SCHEMA {shared} TO {user}", f"GRANT SELECT, INSERT, UPDATE, DELETE {tables}")
    with ch.open_store(at(user=user, store=shared, index="hnsw")) as store:
        store.add([user], CODES[:1], metadata=[{"labels": ["new"]}])
        assert store.delete([user]) == 1
        check_refusal("must be owner of table items; open it as its owner", store.add, [user], CODES[:1], "text")


def test_a_user_who_may_make_no_schema_uses_an_empty_one(user):
    ask(at(), "CREATE EXTENSION IF NOT EXISTS vector")
    name = new_name()
    with ch.open_store(at(user=user, store=name), n_bits=16) as store:
        check_refusal(f"run: CREATE SCHEMA {name} AUTHORIZATION {user}", store.add, ["a"], CODES[:1])
        ask(at(), f"CREATE SCHEMA {name} AUTHORIZATION {user}")
        store.add(["a"], CODES[:1])
        assert store.search(CODES[:1], 1).ids == [["a"]]


def test_hnsw_finds_what_few_items_pass():
    name, n = new_name(), 200
    with ch.open_store(at(store=name), n_bits=16) as store:
        codes = np.random.default_rng(0).integers(0, 128, (n, 2)).astype(np.uint8)
        codes[-5:] = 255
        store.add([f"{row:03}" for row in range(n)], codes, metadata=[{"rare": row >= n - 5} for row in range(n)])
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
