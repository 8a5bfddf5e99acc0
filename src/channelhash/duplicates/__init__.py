"""Near-duplicates in a store: find their groups, propose which item to keep, and keep what people
decide.

>>> from channelhash.search import open_store
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder, open_store(folder, n_bits=8) as store:
...     find_duplicates(store)
[]
"""

from channelhash.duplicates.decisions import decide
from channelhash.duplicates.groups import DuplicateGroup, draw_groups, find_duplicates, regroup
from channelhash.duplicates.keepers import Photo
from channelhash.duplicates.moves import Moved, folder_of, move_rest, undo_last

__all__ = [
    "DuplicateGroup",
    "Moved",
    "Photo",
    "decide",
    "draw_groups",
    "find_duplicates",
    "folder_of",
    "move_rest",
    "regroup",
    "undo_last",
]
