"""``channelhash explain``."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from channelhash.cli import shared
from channelhash.cli.stores import StoreModel

if TYPE_CHECKING:
    from channelhash.explanation.api import Explanation
    from channelhash.explanation.bits import Bit

# Typer takes no list of literals.
_ModalityName = StrEnum("_ModalityName", ["image", "text"])
#: Labels that tell what a bit means.
_LABELS = 3


def explain(
    store: str = typer.Argument(
        ..., metavar="RUN", help="A run's folder, or a store or file of codes (see `search`)."
    ),
    image: list[Path] = typer.Option([], help="An image of the pair."),
    text: list[str] = typer.Option([], help="Words of the pair."),
    like: list[str] = typer.Option([], help="An item of the store, by its id."),
    by: list[_ModalityName] = typer.Option(
        [], help="For each --like: modality of its code; image if there are any."
    ),
    model: StoreModel = None,
    cells: int = typer.Option(
        8, help="Cells along an image's short side; the hidden patch moves by one cell."
    ),
    patch: int = typer.Option(2, help="Side of the hidden patch in cells."),
    fill: Literal["grey", "blur"] = typer.Option(
        "grey", help="Content of the patch: grey, or the image blurred."
    ),
    maps: bool = typer.Option(
        True, "--maps/--no-maps", help="Hide parts of images and leave out words in turn."
    ),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Explain why two items match: which bits agree, what they mean, which parts of an image and
    which words matter.

    Give two of --image, --text and --like.

    Example: channelhash explain runs/table --image dog.jpg --text "a dog on a beach"
    """
    from channelhash import explanation

    settings = explanation.MapSettings(cells, patch, fill) if maps else None
    pair = explanation.explain(store, image, text, like, by, model, settings)
    shared.print_either(pair.as_dict(), as_json, _print_explanation, pair)


def _print_explanation(explanation: "Explanation") -> None:
    first, second = explanation.sides
    typer.echo(f"{first.modality} {first.name!r} and {second.modality} {second.name!r}")
    typer.echo(f"{explanation.summary()} Relaxed distance {explanation.relaxed_distance:.1f} bits.")
    bits = sorted(explanation.bits, key=lambda bit: -abs(bit.share))
    header = ["bit", "values", "", "strength", "share", "meaning"]
    rows = [_bit_row(explanation, bit) for bit in bits]
    shared.print_table("The bits, those that count most first", header, rows)
    header = ["word", "bits farther", "bits that flip"]
    for side, words in zip(explanation.sides, explanation.words, strict=True):
        rows = []
        for word in words or ():
            flips = ", ".join(map(str, word.flips))
            rows.append([word.word, f"{word.influence:+.2f}", flips])
        if rows:
            shared.print_table(f"Without a word of {side.name!r}", header, rows)
    for remark in explanation.remarks:
        typer.echo(f"({remark})")


def _bit_row(explanation: "Explanation", bit: "Bit") -> list[str]:
    """Return the cells of a bit: its values, their strengths and what they mean."""
    values = " ".join(str(int(value)) for value in bit.values)
    strengths = " ".join("–" if value is None else f"{value:.2f}" for value in bit.strengths)
    agrees = "agrees" if bit.agrees else "differs"
    meaning = _meaning(explanation, bit) or "no clear meaning"
    return [str(bit.number), values, agrees, strengths, f"{bit.share:+.3f}", meaning]


def _meaning(explanation: "Explanation", bit: "Bit") -> str:
    """Return the labels that the first item's value of a bit speaks for and against, with |φ|."""
    sign = 1 if bit.values[0] else -1
    names = []
    for name, phi in explanation.bit_labels(bit)[:_LABELS]:
        negation = "" if sign * phi > 0 else "not "
        names.append(f"{negation}{name} {abs(phi):.2f}")
    return ", ".join(names)
