"""``channelhash explain``"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from channelhash.cli.options import AsJson, StoreModel, TrustCode
from channelhash.cli.output import print_json, print_table

if TYPE_CHECKING:
    from channelhash.explanation.api import Explanation
    from channelhash.explanation.bit_labels import Bit


# Typer takes no list of literals.
_Side = StrEnum("_Side", ["image", "text"])


def explain(
    store: str = typer.Argument(..., metavar="RUN", help="A run's folder, or a store or file of codes (see `search`)."),
    image: list[Path] = typer.Option([], help="A picture of the pair."),
    text: list[str] = typer.Option([], help="Words of the pair."),
    like: list[str] = typer.Option([], help="An item of the store, by its id."),
    by: list[_Side] = typer.Option([], help="For each --like: modality of its code; image if there are any."),
    model: StoreModel = None,
    cells: int = typer.Option(8, help="Cells along a picture's short side; the hidden patch moves by one cell."),
    patch: int = typer.Option(2, help="Side of the hidden patch in cells."),
    fill: Literal["grey", "blur"] = typer.Option("grey", help="Content of the patch: grey, or the picture blurred."),
    maps: bool = typer.Option(True, "--maps/--no-maps", help="Hide parts of pictures and leave out words in turn."),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Explain why two items match: which bits agree, what they mean, which parts of a picture and which words matter.

    Give two of --image, --text and --like.

    Example: channelhash explain runs/table --image dog.jpg --text "a dog on a beach"
    """
    from channelhash.explanation import MapSettings
    from channelhash.explanation import explain as explain_items

    settings = MapSettings(cells, patch, fill) if maps else None
    explanation = explain_items(store, image, text, like, by, model, settings)
    if as_json:
        print_json(explanation.as_dict())
        return
    _print_explanation(explanation)


def _print_explanation(explanation: "Explanation") -> None:
    first, second = explanation.sides
    typer.echo(f"{first.modality} {first.name!r} and {second.modality} {second.name!r}")
    typer.echo(f"{explanation.summary()} Relaxed distance {explanation.relaxed_distance:.1f} bits.")
    rows = [
        [
            str(bit.number),
            " ".join(str(int(value)) for value in bit.values),
            "agrees" if bit.agrees else "differs",
            " ".join("–" if value is None else f"{value:.2f}" for value in bit.strengths),
            f"{bit.share:+.3f}",
            _describe_bit(explanation, bit),
        ]
        for bit in sorted(explanation.bits, key=lambda bit: -abs(bit.share))
    ]
    print_table("The bits, those that count most first", ["bit", "values", "", "strength", "share", "meaning"], rows)
    for side, image_map, words in zip(explanation.sides, explanation.image_maps, explanation.words, strict=True):
        if words:
            table = [[word.word, f"{word.influence:+.2f}", ", ".join(map(str, word.flips))] for word in words]
            print_table(f"Without a word of {side.name!r}", ["word", "bits farther", "bits that flip"], table)
        if image_map:
            rows = [[f"{value:+.2f}" for value in row] for row in image_map.influence.tolist()]
            title = f"Hiding a part of {side.name!r}: bits farther, as the cells lie in the picture"
            print_table(title, [""] * len(rows[0]), rows)
    for remark in explanation.remarks:
        typer.echo(f"({remark})")


def _describe_bit(explanation: "Explanation", bit: "Bit") -> str:
    """Return the labels that the first item's value of a bit speaks for and against, with |φ|."""
    sign = 1 if bit.values[0] else -1
    labels = explanation.bit_labels(bit)[:3]
    names = [f"{'' if sign * phi > 0 else 'not '}{name} {abs(phi):.2f}" for name, phi in labels]
    return ", ".join(names) or "no clear meaning"
