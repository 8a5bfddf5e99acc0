"""The open items of a store: its connections, the codes over them, and the hold on its database."""

from contextlib import ExitStack, suppress
from typing import NamedTuple

from channelhash.errors import InputError, JobError
from channelhash.search.local.database import ItemsDatabase
from channelhash.search.local.folder import Facts, StoreFolder
from channelhash.search.local.guard import Guard
from channelhash.search.local.snapshots import CodeLayers
from channelhash.utils.forks import keep_forever


class Opened(NamedTuple):
    """The items of a store and how to get at them.

    Attributes:
        facts: what the codes have in common; None while the folder is empty.
        reader: the connection of reading calls.
        layers: the codes as they are searched, over the reader.
        writer: the connection of writing calls; the reader where nothing is written.
        guard: the hold on the folder's database; None in memory.
    """

    facts: Facts | None
    reader: ItemsDatabase
    layers: CodeLayers
    writer: ItemsDatabase
    guard: Guard | None = None

    def close(self) -> None:
        """Close the connections, and seal the database if nobody else has it open."""
        try:
            if self.guard:
                self.writer.seal()
        finally:
            self.reader.close()
            self.writer.close()
            if self.guard:
                self.guard.release()

    def abandon(self) -> None:
        """Leave everything to the process that this one was forked from; SQLite lets a child not even close it."""
        keep_forever(self.reader)
        keep_forever(self.writer)
        if self.guard:
            self.guard.abandon()


def in_memory(facts: Facts | None) -> Opened:
    """Make a database in memory, without items."""
    items = ItemsDatabase(None)
    return Opened(facts, items, CodeLayers(items, facts.n_bits if facts else 0, None), items)


def in_folder(folder: StoreFolder, facts: Facts) -> Opened:
    """Open the database of a store that is there, checked as `Guard` does."""
    with ExitStack() as stack:
        guard = Guard(folder, facts)
        stack.callback(guard.release)
        reader = ItemsDatabase(folder.database, guard, facts.stem)
        stack.callback(reader.close)
        writer = ItemsDatabase(folder.database, guard, facts.stem)
        stack.pop_all()
    return Opened(facts, reader, CodeLayers(reader, facts.n_bits, folder), writer, guard)


def close_quietly(opened: Opened) -> None:
    """Close where nobody can be told of an error; a database that is not sealed is checked when it is opened."""
    with suppress(InputError, JobError):
        opened.close()
