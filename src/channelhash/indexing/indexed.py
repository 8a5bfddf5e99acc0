"""What became of the items of a source when they were indexed."""

from dataclasses import dataclass, field


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
