"""Examples of retrieval: queries of a run, and what they find."""

from pathlib import Path

from channelhash.codes import CodeSet
from channelhash.lab.brute_force import answer_some
from channelhash.lab.report import page
from channelhash.metrics.plots import arrow
from channelhash.utils.contact_sheet import bits
from channelhash.utils.image_files import decode, jpeg, open_image

#: Queries of a task.
_QUERIES = 4
#: Answers of a query.
_ANSWERS = 6
#: Longest side of a thumbnail, in pixels.
_SIDE = 160


def _thumbnail(path: str) -> str:
    """Return an address that holds a small JPEG copy of an image; empty if it cannot be read."""
    try:
        with open_image(path) as opened:
            return page.data_uri(jpeg(decode(opened, 2 * _SIDE), _SIDE), "image/jpeg")
    except OSError:
        return ""


def example_blocks(query: CodeSet, database: CodeSet, notes: list[str]) -> list[page.Block]:
    """Search a few queries of each cross-modal task (of each task if there is one modality)."""
    thumbnails: dict[str, str] = {}
    tasks = page.tasks_between(query, database)
    answers = [_answers(query, database, task, thumbnails) for task in tasks]
    n_lost = sum(not uri for uri in thumbnails.values())
    if n_lost:
        notes.append(
            f"{n_lost} pictures of the examples cannot be read any more; their words are shown."
        )
    right = "" if query.labels is None else " An answer is right if it shares a label."
    return [page.Text(f"Queries spaced evenly over the query set, not chosen.{right}"), *answers]


def _answers(
    query: CodeSet, database: CodeSet, task: str, thumbnails: dict[str, str]
) -> page.Answers:
    modality, searched = task.split("->")
    rows = []
    for row, answers in answer_some(query, database, task, _QUERIES, _ANSWERS).items():
        cards = [_card(query, row, f"query ({modality})", thumbnails)]
        for item, distance, right in answers:
            cards.append(_card(database, item, bits(distance), thumbnails, right))
        rows.append(cards)
    return page.Answers(
        f"{arrow(task)}: the codes of each {modality}, and the nearest {searched} codes", rows
    )


def _card(
    codes: CodeSet, row: int, heading: str, thumbnails: dict[str, str], right: bool | None = None
) -> page.Card:
    """Show all that is known of an item, whichever modality was searched."""
    image = codes.images[row] if codes.images else ""
    if image and image not in thumbnails:
        thumbnails[image] = _thumbnail(image)
    text = codes.texts[row] if codes.texts else ""
    detail = " · ".join(filter(None, (codes.ids[row], ", ".join(codes.names_of(row)))))
    return page.Card(heading, thumbnails.get(image, ""), text, detail, right)


def read_test_codes(folder: Path) -> tuple[CodeSet, CodeSet] | None:
    """Read the codes of queries and database that `evaluate` wrote; None if they are missing or
    empty.
    """
    paths = [folder / "codes" / f"test-{role}.parquet" for role in ("query", "retrieval")]
    if not all(path.exists() for path in paths):
        return None
    query, database = map(CodeSet.load, paths)
    return (query, database) if len(query) and len(database) else None
