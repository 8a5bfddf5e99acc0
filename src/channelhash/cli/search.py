"""``channelhash search``"""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Modality, SearchableStore, Sheet, StoreModel, TrustCode, Where
from channelhash.cli.output import print_json, print_table


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
    model: StoreModel = None,
    sheet: Sheet = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the items nearest to words, a picture or another item, by Hamming distance; ties by id.

    Example: channelhash search runs/table --text "a dog on a beach" -k 5
    """
    from channelhash.search.query import SearchOptions, draw_hits, find_image, open_filled_store, search_store

    options = SearchOptions(k, radius, None, modality.value if modality else None, where, rerank)
    opened = open_filled_store(store)
    query_modality = by.value if by else None
    hits = search_store(opened, options, text=text, image=image, like=like, by=query_modality, model=model)
    if sheet:
        query = text if text is not None else image or find_image(opened, like or "") or like or ""
        draw_hits(hits, query, sheet)
    opened.close()
    if as_json:
        print_json({"results": [hit.as_dict() for hit in hits]})
        return
    if hits:
        rows = [[hit.id, str(hit.distance), hit.text, ", ".join(hit.labels)] for hit in hits]
        print_table(f"{len(hits)} answers", ["id", "bits", "text", "labels"], rows)
    else:
        conditions = [f" within {radius} bits"] * (radius is not None) + [f" that passes {where}"] * (where is not None)
        typer.echo(f"0 answers: {store} has no item{''.join(conditions)}")
    if sheet:
        typer.echo(f"Pictures in {sheet}")
