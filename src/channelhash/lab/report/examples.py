"""Retrieval examples of a run: a few queries, spaced evenly over the query set, with their nearest items."""

import io
from dataclasses import dataclass, field

import numpy as np

from channelhash.codes.code_set import CodeSet
from channelhash.lab.report.page import Answers, Block, Card, Text, data_uri
from channelhash.lab.report.standing import cross_tasks
from channelhash.search.index.brute_force import nearest
from channelhash.utils.image_decoding import decode
from channelhash.utils.image_files import open_image
from channelhash.utils.image_grid import bits
from channelhash.utils.plotting import arrow

_QUERIES = 4
_ANSWERS = 6
_SIDE = 160


@dataclass
class Thumbnails:
    """Small JPEG copies of images, each read once.

    Attributes:
        unreadable: files that cannot be read any more.
    """

    unreadable: set[str] = field(default_factory=set)
    _uris: dict[str, str] = field(default_factory=dict)

    def uri(self, path: str) -> str:
        """Return an address that holds the image; empty if it cannot be read."""
        if path not in self._uris:
            try:
                with open_image(path) as opened:
                    image = decode(opened, 2 * _SIDE)
            except OSError:
                self.unreadable.add(path)
                self._uris[path] = ""
                return ""
            image.thumbnail((_SIDE, _SIDE))
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=80)
            self._uris[path] = data_uri(buffer.getvalue(), "image/jpeg")
        return self._uris[path]


def example_blocks(query: CodeSet, database: CodeSet, notes: list[str]) -> list[Block]:
    """Search a few queries of each cross-modal task (of each task where there is one modality).

    Args:
        query: codes of the queries; at least one.
        database: codes that are searched, of the same model.
        notes: gets a line if images cannot be read any more.
    """
    thumbnails = Thumbnails()
    tasks = cross_tasks(f"{asked}->{found}" for asked in query.codes for found in database.codes)
    answers = [_answers(query, database, task, thumbnails) for task in tasks]
    if lost := len(thumbnails.unreadable):
        notes.append(f"{lost} pictures of the examples cannot be read any more; their words are shown.")
    how = "Queries spaced evenly over the query set, not chosen."
    return [Text(how + " An answer is right if it shares a label." * (query.labels is not None)), *answers]


def _answers(query: CodeSet, database: CodeSet, task: str, thumbnails: Thumbnails) -> Answers:
    modality, searched = task.split("->")
    picked = np.unique(np.linspace(0, len(query) - 1, _QUERIES).astype(int))
    matches = nearest(query.codes[modality][picked], database.codes[searched], database.ids, _ANSWERS)
    rows = []
    for row, match in zip(picked.tolist(), matches, strict=True):
        cards = [_card(query, row, f"query ({modality})", thumbnails)]
        for item, distance in zip(match.rows.tolist(), match.distances.tolist(), strict=True):
            cards.append(_card(database, item, bits(distance), thumbnails, _relevant(query, row, database, item)))
        rows.append(cards)
    return Answers(f"{arrow(task)}: the codes of each {modality}, and the nearest {searched} codes", rows)


def _card(codes: CodeSet, row: int, heading: str, thumbnails: Thumbnails, right: bool | None = None) -> Card:
    """Show an item with all that is known of it, whichever modality was searched."""
    uri = thumbnails.uri(codes.images[row]) if codes.images else ""
    text = codes.texts[row] if codes.texts else ""
    labels = ", ".join(codes.names_of(row))
    return Card(heading, uri, text, " · ".join(part for part in (codes.ids[row], labels) if part), right)


def _relevant(query: CodeSet, row: int, database: CodeSet, item: int) -> bool | None:
    if query.labels is None or database.labels is None:
        return None
    return bool((query.labels[row] & database.labels[item]).any())
