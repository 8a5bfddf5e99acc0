"""What became of the items of a source when they were indexed."""

from dataclasses import dataclass, field

from channelhash.models.description import fit_facts, read_description
from channelhash.search.store import Store


@dataclass(frozen=True)
class Indexed:
    """Counts of the items of a source after indexing.

    Attributes:
        added: items new to the store.
        replaced: items that had changed and were encoded again.
        unchanged: items that were left alone.
        pruned: items removed from the store because their image is gone.
        problems: a line for each item that was left out.
        items: items in the store now.
        seconds: time of the whole.
        rate: items added and replaced a second, by the time of encoding and writing them.
        moved: items whose image was moved or renamed in its folder: they keep their codes under the new id.
        skipped: of a folder, reason -> number of files left out for it, besides those of ``problems``.

    >>> Indexed(added=3, items=3).replaced
    0
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    pruned: int = 0
    problems: tuple[str, ...] = ()
    items: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    moved: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


def fit_of(store: Store) -> dict[str, str]:
    """Return the encoder of a store and how its codes were fitted, see `fit_facts`; of other stores, nothing."""
    description = None if store.model_folder is None else store.model_folder / "model" / "config.json"
    return fit_facts(read_description(description)) if description is not None and description.exists() else {}
