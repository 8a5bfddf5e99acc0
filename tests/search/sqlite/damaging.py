"""What tests do to the files of a store behind its back."""

import sqlite3
from contextlib import closing
from pathlib import Path

from channelhash.search.sqlite.folder import StoreFolder


def flip(path: Path, offset: int, bit: int = 0) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 1 << bit
    path.write_bytes(content)


def change(folder: Path, sql: str) -> None:
    """Change an unsealed database so that SQLite finds nothing wrong with it."""
    with closing(sqlite3.connect(folder / "items.sqlite")) as connection:
        connection.create_function("separate", 1, str)
        connection.execute(sql)
        connection.commit()
    # Forget what the database was, as if the store had been killed: the next opening checks all of
    # it.
    store = StoreFolder(folder)
    store.description.write_text(store.manifest()._replace(writes=0, digest="").to_json())
