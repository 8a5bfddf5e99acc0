"""``channelhash search``"""

from enum import StrEnum
from pathlib import Path

import typer

from channelhash.cli.output import print_json, print_table


class Modality(StrEnum):
    """Whose codes are searched."""

    image = "image"
    text = "text"


def search(
    store: Path = typer.Argument(..., help="A run's folder (searches its retrieval set), or a file of codes."),
    text: str | None = typer.Option(None, help="Search with words."),
    image: Path | None = typer.Option(None, help="Search with a picture."),
    like: str | None = typer.Option(None, help="Search with the codes of the item that has this id."),
    modality: Modality | None = typer.Option(None, help="Which codes are searched; images if there are any."),
    k: int = typer.Option(10, "-k", help="Number of answers."),
    radius: int | None = typer.Option(None, help="Instead, all answers within so many bits."),
    model: Path | None = typer.Option(None, help="Run or saved model that made the codes, for a Parquet file."),
    sheet: Path | None = typer.Option(None, help="Also write the answers as a PNG."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
) -> None:
    """The items nearest to words, a picture or another item, by Hamming distance; ties by id.

    Example: channelhash search runs/table --text "a dog on a beach" -k 5
    """
    from channelhash.search.answers import answer, draw_answers

    found = answer(
        store,
        text=text,
        image=image,
        like=like,
        modality=modality.value if modality else None,
        k=k,
        radius=radius,
        model=model,
    )
    if sheet:
        draw_answers(found, text if text is not None else image or like or "", sheet)
    if as_json:
        print_json({"results": [hit.as_dict() for hit in found]})
        return
    rows = [[hit.id, str(hit.distance), hit.text, ", ".join(hit.labels)] for hit in found]
    print_table(f"{len(found)} answers", ["id", "bits", "text", "labels"], rows)
    if sheet:
        typer.echo(f"Pictures in {sheet}")
