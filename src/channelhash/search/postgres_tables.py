"""The tables of a store in PostgreSQL, which are created, described and written in transactions.

Everything is in one schema, so that ``DROP SCHEMA … CASCADE`` removes a store and nothing else.
``facts`` has one row, which every writer locks first, so that writers take turns. ``items`` has one
row per item: ``id``, ``metadata`` and, for each modality, ``code_…`` of type ``bit(n_bits)``. A
store with projections also has ``projection_…``, with one byte per bit.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from channelhash.codes.stage import Stage
from channelhash.errors import InputError
from channelhash.search.checks import check_format
from channelhash.search.items import Facts, NewItems
from channelhash.search.postgres_connections import Bits

#: What ``facts`` says of the form of the tables.
_FORMAT = "channelhash postgres 2"
#: Bytes of the longest identifier of PostgreSQL.
_MAX_IDENTIFIER = 63
#: Encodings in which ``COLLATE "C"``, which compares bytes, keeps the order of code points.
_ORDERED_ENCODINGS = ("UTF8", "LATIN1", "SQL_ASCII")
#: Metadata of an item with those that are written; a null takes its key away.
_MERGED = "jsonb_strip_nulls(coalesce(items.metadata, '{}') || incoming.metadata)"


class Stored(NamedTuple):
    """What a store says of itself, and what its database is like.

    Attributes:
        facts: what the codes have in common.
        vector: the schema of pgvector, as SQL writes it; hosted databases have it in one of its
            own.
        order: SQL expression that orders ids by their code points.
        writable: whether this user may write to the store.

    >>> Stored(Facts(64, ""), "public", order="id", writable=True).facts.n_bits
    64
    """

    facts: Facts
    vector: str
    order: str
    writable: bool


class _Column(NamedTuple):
    """The values of a column that is written, and their type."""

    kind: str
    values: Sequence[Any]


class Tables:
    """The tables of one store. Each method runs in the transaction of its cursor.

    Attributes:
        items: the table of the items, as SQL writes it.
        facts: the table of the facts, likewise.

    >>> Tables("postgresql://localhost/photos", "channelhash").items
    'channelhash.items'
    """

    def __init__(self, address: str, schema: str) -> None:
        self._address = address
        self._schema = schema
        self.items = f"{schema}.items"
        self.facts = f"{schema}.facts"

    def read_facts(self, cursor: Any) -> Facts | None:
        """Return the facts of the store, which must be of this version; None if there is none."""
        # to_regclass may not see what another process has created since the transaction began.
        sql = (
            "SELECT relname FROM pg_namespace AS n JOIN pg_class ON relnamespace = n.oid WHERE "
            "nspname = %s"
        )
        names = [name for (name,) in cursor.execute(sql, (self._schema,)).fetchall()]
        # An administrator may have created an empty schema for a user who may create none.
        if not names:
            return None
        if "facts" not in names:
            problem = (
                f"the schema {self._schema} was not made by channelhash; choose another store="
            )
            raise InputError(f"{self._address}: {problem}")
        sql = f"SELECT format, n_bits, model, projection_bytes, stage_name FROM {self.facts}"
        [(written_as, *values)] = cursor.execute(sql).fetchall()
        check_format(self._address, written_as, _FORMAT, "push it again")
        return Facts(*values)

    def read_database(self, cursor: Any, facts: Facts) -> Stored:
        cursor.execute(
            "SELECT (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS n ON "
            "n.oid = extnamespace WHERE extname = 'vector'), getdatabaseencoding(), NOT "
            "pg_is_in_recovery() AND has_table_privilege(items, 'INSERT') AND "
            "has_table_privilege(items, 'UPDATE') AND has_table_privilege(facts, 'UPDATE') FROM "
            "(SELECT %s::regclass AS items, %s::regclass AS facts) AS tables",
            (self.items, self.facts),
        )
        [(vector, encoding, writable)] = cursor.fetchall()
        if vector is None:
            raise InputError(
                f"{self._address}: has no pgvector any more; let an administrator CREATE EXTENSION "
                "vector"
            )
        order = "id" if encoding in _ORDERED_ENCODINGS else "convert_to(id, 'UTF8')"
        return Stored(facts, vector, order, writable)

    def create(self, cursor: Any, facts: Facts, stage: Stage | None) -> None:
        """Create the tables, unless another process has created them meanwhile."""
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('channelhash'))")
        if self.read_facts(cursor):
            return
        cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
        sql = (
            "SELECT has_database_privilege(current_database(), 'CREATE'), current_user, "
            "to_regnamespace(%s) IS NULL"
        )
        [(allowed, user, is_new)] = cursor.execute(sql, (self._schema,)).fetchall()
        if is_new and not allowed:
            remedy = f"let an administrator run: CREATE SCHEMA {self._schema} AUTHORIZATION {user}"
            raise InputError(f"{self._address}: {user} may make no schema here; {remedy}")
        if is_new:
            cursor.execute(f"CREATE SCHEMA {self._schema}")
        cursor.execute(
            f"CREATE TABLE {self.facts} (format text NOT NULL, n_bits integer NOT NULL, "
            "model text NOT NULL,"
            " projection_bytes integer NOT NULL, stage_name text NOT NULL, stage bytea,"
            " keys text[] NOT NULL, version bigint NOT NULL)"
        )
        cursor.execute(
            f"INSERT INTO {self.facts} VALUES (%s, %s, %s, %s, %s, %s, '{{}}', 0)",
            (_FORMAT, *facts, None if stage is None else stage.to_bytes()),
        )
        cursor.execute(
            f'CREATE TABLE {self.items} (id text COLLATE "C" PRIMARY KEY, metadata jsonb NOT NULL)'
        )
        cursor.execute(
            f"CREATE INDEX items_labels ON {self.items} USING gin ((metadata -> 'labels'))"
        )

    def coded_modalities(self, cursor: Any) -> list[str]:
        """Return the modalities that the items have columns for, in alphabetical order."""
        sql = (
            "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
            "AND NOT attisdropped"
        )
        columns = [name for (name,) in cursor.execute(sql, (self.items,)).fetchall()]
        return sorted(name.removeprefix("code_") for name in columns if name.startswith("code_"))

    def add_columns(self, cursor: Any, modalities: Sequence[str], facts: Facts) -> None:
        """Add the columns of the modalities that have none yet."""
        coded = self.coded_modalities(cursor)
        for modality in modalities:
            if len(f"projection_{modality}".encode()) > _MAX_IDENTIFIER:
                raise InputError(
                    f"{self._address}: modality {modality!r} has too long a name; choose a shorter "
                    "one"
                )
            if modality in coded:
                continue
            new_column = f"ALTER TABLE {self.items} ADD COLUMN"
            cursor.execute(f'{new_column} "code_{modality}" bit({facts.n_bits})')
            if facts.projected:
                cursor.execute(f'{new_column} "projection_{modality}" bytea')

    def missing_hnsw(self, cursor: Any) -> list[str]:
        """Return the modalities without an index. Everybody may ask; only the owner may add one."""
        cursor.execute("SELECT indexname FROM pg_indexes WHERE schemaname = %s", (self._schema,))
        names = {name for (name,) in cursor.fetchall()}
        return [
            modality
            for modality in self.coded_modalities(cursor)
            if f"hnsw_{modality}" not in names
        ]

    def add_hnsw(self, cursor: Any, vector: str) -> None:
        """Add the index of every modality that has none yet; nobody can write meanwhile."""
        # An index that does not fit into this memory takes many times longer. The server's own
        # value, 64 MB, holds about 150,000 codes.
        cursor.execute("SET LOCAL maintenance_work_mem = '1GB'")
        for modality in self.missing_hnsw(cursor):
            cursor.execute(
                f'CREATE INDEX "hnsw_{modality}" ON {self.items} USING hnsw ("code_{modality}" '
                f"{vector}.bit_hamming_ops)"
            )

    def lock_writers(self, cursor: Any, keys: Sequence[str] = ()) -> None:
        """Wait until no other process writes to the store; note the metadata keys to be written."""
        every_key = "ARRAY(SELECT DISTINCT unnest(keys || %s::text[]) ORDER BY 1)"
        cursor.execute(
            f"UPDATE {self.facts} SET version = version + 1, keys = {every_key}",
            (list(keys),),
        )

    def check_absent(self, cursor: Any, new: NewItems) -> None:
        """Raise `InputError` if an item has one of the new codes already."""
        for modality in sorted(new.codes):
            sql = (
                f'SELECT id FROM {self.items} WHERE id = ANY(%s) AND "code_{modality}" IS '
                "NOT NULL LIMIT 1"
            )
            for (name,) in cursor.execute(sql, (new.ids,)).fetchall():
                raise InputError(
                    f"{self._address}: {name!r} has a code for {modality} already; use upsert"
                )

    def write_items(self, cursor: Any, new: NewItems) -> None:
        """Write items over those with the same ids: new codes replace codes, new metadata replaces
        that of the same keys.
        """
        columns = _columns(new)
        self._send(cursor, columns)
        if not new.codes:
            # An item that was deleted meanwhile does not come back.
            cursor.execute(
                f"UPDATE {self.items} SET metadata = {_MERGED} "
                "FROM pg_temp.incoming WHERE items.id = incoming.id"
            )
            return
        changed = [name for name in columns if name != "id"]
        if not new.metadata:
            changed.remove("metadata")
        assigned = ", ".join(f"{name} = EXCLUDED.{name}" for name in changed)
        values = {name: f"incoming.{name}" for name in columns} | {"metadata": _MERGED}
        cursor.execute(
            f"INSERT INTO {self.items} ({', '.join(columns)}) SELECT {', '.join(values.values())} "
            f"FROM pg_temp.incoming LEFT JOIN {self.items} ON items.id = incoming.id "
            f"ON CONFLICT (id) DO UPDATE SET {assigned}"
        )

    def _send(self, cursor: Any, columns: Mapping[str, _Column]) -> None:
        """Send rows to the temporary table ``incoming``, which ends with the transaction."""
        names = ", ".join(columns)
        cursor.execute(
            f"CREATE TEMP TABLE incoming ON COMMIT DROP AS SELECT {names} FROM {self.items} WITH "
            "NO DATA"
        )
        with cursor.copy(f"COPY pg_temp.incoming ({names}) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types([column.kind for column in columns.values()])
            for row in zip(*(column.values for column in columns.values()), strict=True):
                copy.write_row(row)


def _columns(new: NewItems) -> dict[str, _Column]:
    """Return name -> column of the rows of new items."""
    columns = {
        "id": _Column("text", new.ids),
        "metadata": _Column("jsonb", new.metadata or [{} for _ in new.ids]),
    }
    for modality, packed in new.codes.items():
        codes = [Bits(new.n_bits, code.tobytes()) for code in packed]
        columns[f'"code_{modality}"'] = _Column("bit", codes)
    for modality, rows in (new.projections or {}).items():
        columns[f'"projection_{modality}"'] = _Column("bytea", list(map(bytes, rows)))
    return columns
