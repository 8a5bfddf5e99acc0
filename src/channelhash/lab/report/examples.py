"""What the codes of a run find: a few queries, spaced evenly over the query set, with their nearest items."""

import io
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from channelhash.codes.code_set import CodeSet
from channelhash.lab.report.figures import arrow
from channelhash.lab.report.page import Answers, Card, data_uri
from channelhash.search.index.brute_force import nearest
from channelhash.utils.image_grid import bits

_QUERIES = 4
_ANSWERS = 6
_SIDE = 160


@dataclass
class Thumbnails:
    """Small JPEG copies of pictures, each read once.

    Attributes:
        lost: pictures that cannot be read any more.
    """

    lost: set[str] = field(default_factory=set)
    _known: dict[str, str] = field(default_factory=dict)

    def uri(self, path: str) -> str:
        """A picture as an address that holds it; empty if it cannot be read."""
        if path not in self._known:
            try:
                with Image.open(path) as opened:
                    opened.draft("RGB", (2 * _SIDE, 2 * _SIDE))  # JPEG decodes straight to a nearby smaller size
                    picture = opened.convert("RGB")
            except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
                self.lost.add(path)
                self._known[path] = ""
                return ""
            picture.thumbnail((_SIDE, _SIDE))
            buffer = io.BytesIO()
            picture.save(buffer, "JPEG", quality=80)
            self._known[path] = data_uri(buffer.getvalue(), "image/jpeg")
        return self._known[path]


def retrieval_examples(query: CodeSet, database: CodeSet, thumbnails: Thumbnails) -> list[Answers]:
    """A few queries of each cross-modal task (of each task where there is one modality) with their nearest items.

    Args:
        query: codes that ask; at least one.
        database: codes that are searched, of the same model.
        thumbnails: reads the pictures, and keeps which could not be read.
    """
    tasks = [(asked, searched) for asked in query.codes for searched in database.codes]
    tasks = [task for task in tasks if task[0] != task[1]] or tasks
    return [_answers(query, database, asked, searched, thumbnails) for asked, searched in tasks]


def _answers(query: CodeSet, database: CodeSet, asked: str, searched: str, thumbnails: Thumbnails) -> Answers:
    picked = np.unique(np.linspace(0, len(query) - 1, _QUERIES).astype(int))
    found = nearest(query.codes[asked][picked], database.codes[searched], database.ids, _ANSWERS)
    rows = []
    for row, match in zip(picked.tolist(), found, strict=True):
        cards = [_card(query, row, f"query ({asked})", thumbnails)]
        for item, distance in zip(match.rows.tolist(), match.distances.tolist(), strict=True):
            cards.append(_card(database, item, bits(distance), thumbnails, _relevant(query, row, database, item)))
        rows.append(cards)
    return Answers(
        f"{arrow(f'{asked}->{searched}')}: the codes of each {asked}, and the nearest {searched} codes", rows
    )


def _card(codes: CodeSet, row: int, heading: str, thumbnails: Thumbnails, right: bool | None = None) -> Card:
    """An item with all that is known of it, whichever modality was asked or searched."""
    uri = thumbnails.uri(codes.images[row]) if codes.images else ""
    text = codes.texts[row] if codes.texts else ""
    labels = ", ".join(codes.names_of(row))
    return Card(heading, uri, text, " · ".join(part for part in (codes.ids[row], labels) if part), right)


def _relevant(query: CodeSet, row: int, database: CodeSet, item: int) -> bool | None:
    if query.labels is None or database.labels is None:
        return None
    return bool((query.labels[row] & database.labels[item]).any())
