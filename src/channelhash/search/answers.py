"""A question in words, a picture or an item, answered from a file of codes."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from channelhash.codes import PackedCodes
from channelhash.codeset import CodeSet
from channelhash.contact_sheet import Cell, bits, write_contact_sheet
from channelhash.errors import InputError
from channelhash.models import load_model
from channelhash.search.exact import nearest, within


@dataclass(frozen=True)
class Hit:
    """One answer.

    Attributes:
        id: the item.
        distance: number of bits in which its code differs from the query's.
        text: its text, empty if unknown.
        labels: its label names, empty if unknown.
        image: its picture's path, empty if unknown.
    """

    id: str
    distance: int
    text: str
    labels: list[str]
    image: str

    def as_dict(self) -> dict[str, Any]:
        """The answer as JSON-able values."""
        return asdict(self)


def answer(
    store: Path,
    *,
    text: str | None = None,
    image: Path | None = None,
    like: str | None = None,
    modality: str | None = None,
    k: int = 10,
    radius: int | None = None,
    model: Path | None = None,
) -> list[Hit]:
    """The items nearest to one question, nearest first, equal distances by id.

    Args:
        store: a run's folder, whose test retrieval set is searched, or a Parquet file of codes.
        text: words to search with.
        image: picture to search with.
        like: id of an item to search with: its own image code for images, its text code for texts.
        modality: whose codes are searched; images if there are any.
        k: number of answers.
        radius: instead of ``k``, all items within so many bits, inclusive.
        model: for a Parquet file, the run or model that made the codes.

    Raises:
        InputError: not exactly one question, nothing to search, an unknown id, ``k`` or ``radius`` out of range, or
            codes of another model.
    """
    if sum(question is not None for question in (text, image, like)) != 1:
        raise InputError("search: give exactly one of --text, --image and --like")
    if text is not None and not text.strip():
        raise InputError("--text: is empty; give some words")
    if k < 1:
        raise InputError(f"-k {k}: ask for at least 1 answer")
    if radius is not None and radius < 0:
        raise InputError(f"--radius {radius}: a distance is at least 0 bits")
    codes = _codes(store)
    modality = modality or ("image" if "image" in codes.codes else "text")
    if modality not in codes.codes:
        raise InputError(f"{store}: holds {' and '.join(codes.codes)} codes, no {modality} codes")
    asked = _encode(codes, store, model, text, image) if like is None else _code_of(codes, like, modality, store)
    database, ids = codes.codes[modality], codes.ids
    match = (nearest(asked, database, ids, k) if radius is None else within(asked, database, ids, radius))[0]
    return [
        Hit(
            codes.ids[row],
            int(distance),
            codes.texts[row] if codes.texts else "",
            codes.names_of(row),
            codes.images[row] if codes.images else "",
        )
        for row, distance in zip(match.rows.tolist(), match.distances, strict=True)
    ]


def draw_answers(hits: list[Hit], question: str | Path, path: Path) -> None:
    """The question and its answers as a PNG, one row."""
    asked = Cell(question, "query") if isinstance(question, Path) else Cell(None, question)
    cells = [
        Cell(Path(hit.image) if hit.image else None, f"{bits(hit.distance)}: {hit.text or hit.id}") for hit in hits
    ]
    write_contact_sheet([[asked, *cells]], path)


def _codes(store: Path) -> CodeSet:
    if store.is_file():
        return CodeSet.load(store)
    path = store / "codes" / "test-retrieval.parquet"
    if (store / "config.yaml").exists() and not path.exists():
        raise InputError(f"{store}: this run has no codes yet; write them with `channelhash evaluate {store}`")
    if not path.exists():
        raise InputError(f"{store}: neither a run's folder nor a Parquet file of codes")
    return CodeSet.load(path)


def _code_of(codes: CodeSet, name: str, modality: str, store: Path) -> PackedCodes:
    if name not in codes.ids:
        raise InputError(f"--like {name}: {store} has no item with this id")
    row = list(codes.ids).index(name)
    return codes.codes[modality][row : row + 1]


def _encode(codes: CodeSet, store: Path, model: Path | None, text: str | None, image: Path | None) -> PackedCodes:
    if model is None and store.is_file():
        raise InputError(f"{store}: to encode a question, add --model with the run that made these codes")
    encoder = load_model(model or store)
    if codes.model and codes.model != encoder.fingerprint():
        raise InputError(f"{store}: these codes were made by another model than {model or store}; encode them again")
    return encoder.encode_texts([text]) if text is not None else encoder.encode_images([image or Path()])
