"""``channelhash search``"""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from channelhash.cli.options import AsJson, Modality, SearchableStore, Sheet, StoreModel, TrustCode, Where
from channelhash.cli.output import print_json, print_table

if TYPE_CHECKING:
    from channelhash.search.query import Hits


def search(
    store: SearchableStore,
    text: str | None = typer.Option(None, help="Search with words."),
    image: Path | None = typer.Option(None, help="Search with a picture."),
    like: str | None = typer.Option(None, help="Search with the codes of the item that has this id."),
    by: Modality | None = typer.Option(None, help="With --like: modality of its code; by default the searched one."),
    modality: Modality | None = typer.Option(None, help="Modality to search; images if there are any."),
    k: int = typer.Option(10, "-k", help="Number of results."),
    radius: int | None = typer.Option(None, help="Instead of -k: all items within so many bits."),
    where: Where = None,
    rerank: int | None = typer.Option(None, help="Reorder the nearest so many by the query's real-valued outputs."),
    collapse: bool = typer.Option(False, "--collapse", help="Fold near-duplicates into the first of them."),
    model: StoreModel = None,
    sheet: Sheet = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the items nearest to words, a picture or another item, by Hamming distance; ties by id.

    Example: channelhash search runs/table --text "a dog on a beach" -k 5
    """
    from channelhash.search.duplicates import RADIUS
    from channelhash.search.query import SearchOptions, draw_hits, find_image, open_filled_store, search_store

    options = SearchOptions(
        k, radius, None, modality.value if modality else None, where, rerank, RADIUS if collapse else None
    )
    opened = open_filled_store(store)
    query_modality = by.value if by else None
    hits = search_store(opened, options, text=text, image=image, like=like, by=query_modality, model=model)
    if sheet:
        query = text if text is not None else image or find_image(opened, like or "") or like or ""
        draw_hits(hits, query, sheet)
    opened.close()
    if as_json:
        print_json({"results": [hit.as_dict() for hit in hits], "close": hits.close})
        return
    if hits:
        _print_hits(hits)
    else:
        conditions = [f" within {radius} bits"] * (radius is not None) + [f" that passes {where}"] * (where is not None)
        typer.echo(f"0 answers: {store} has no item{''.join(conditions)}")
    if sheet:
        typer.echo(f"Pictures in {sheet}")


def _print_hits(hits: "Hits") -> None:
    """Print a line a hit; of hits that are not close, first that they are not."""
    title = f"{len(hits)} answers"
    if hits.close is False:
        title = f"nothing close; {title} from farther off"
    header, rows = ["id", "bits", "match", "text", "labels"], []
    for hit in hits:
        match = "–" if hit.match is None else f"{100 * hit.match:.2g} %"
        rows.append([hit.id, str(hit.distance), match, hit.text, ", ".join(hit.labels)])
        if hit.duplicates is not None:
            rows[-1].append(str(len(hit.duplicates) or ""))
    print_table(title, header + ["duplicates"] * (hits[0].duplicates is not None), rows)
