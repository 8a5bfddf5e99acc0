"""``channelhash search``"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from channelhash.cli.options import AsJson, By, Modality, SearchableStore, Sheet, StoreModel, TrustCode, Where
from channelhash.cli.output import print_json, print_table, printable, say
from channelhash.cli.photos import Captions, Encoder, Exclude, open_searched
from channelhash.errors import InputError

if TYPE_CHECKING:
    from channelhash.search.hits import Hits, SearchOptions


def search(
    store: SearchableStore,
    question: str | None = typer.Argument(
        None, help='What to search for: "a beach" or, in parts, \'beach "two dogs"^2 -people\'.'
    ),
    text: str | None = typer.Option(None, help="The query in words, as an option."),
    image: Path | None = typer.Option(None, help="Search with a picture."),
    like: str | None = typer.Option(None, help="Search with the codes of the item that has this id."),
    minus: list[str] = typer.Option([], help="Words or a picture that are not wanted. May be repeated."),
    minus_like: list[str] = typer.Option([], help="Id of an item that is not wanted. May be repeated."),
    by: By | None = typer.Option(
        None,
        help="What to search: image codes, text codes, words, or all of them, the default for words. With --like "
        "alone: which of its codes to search with.",
    ),
    modality: Modality | None = typer.Option(None, help="Modality to search; images if there are any."),
    k: int = typer.Option(10, "-k", help="Number of results."),
    radius: int | None = typer.Option(None, help="Return all items within this many bits, instead of -k."),
    where: Where = None,
    rerank: int | None = typer.Option(None, help="Reorder this many nearest items by the query's real-valued outputs."),
    collapse: bool = typer.Option(False, "--collapse", help="Fold near-duplicates into the first of them."),
    model: StoreModel = None,
    encoder: Encoder = [],
    captions: Captions = None,
    exclude: Exclude = [],
    sheet: Sheet = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Find the items that answer words, a picture, another item, or several of them together.

    Example: channelhash search photos.store "a dog on a beach -people" -k 5
    """
    from channelhash.search.duplicates import default_radius
    from channelhash.search.hits import SearchOptions, draw_hits, find_image
    from channelhash.search.query import search_store

    if question is not None and text is not None:
        raise InputError("--text: the query is given twice; leave one of them out")
    text = text if question is None else question
    options = SearchOptions(k, radius, None, modality and modality.value, where, rerank)
    opened, loaded, problems = open_searched(store, model, encoder, captions, exclude, by is By.words)
    if collapse:
        options = replace(options, collapse=default_radius(opened.n_bits or 0))
    hits = search_store(
        opened,
        options,
        text=text,
        image=image,
        like=like,
        by=by and by.value,
        minus=[Path(what) if Path(what).is_file() else what for what in minus],
        minus_like=minus_like,
        model=loaded,
    )
    if sheet:
        draw_hits(hits, text if text is not None else image or find_image(opened, like or "") or like or "", sheet)
    opened.close()
    if hits.note:
        say(hits.note)
    if as_json:
        print_json({"results": [hit.as_dict() for hit in hits], "close": hits.close, "problems": problems})
    else:
        _print_answers(hits, options, store, sheet)


def _print_answers(hits: "Hits", options: "SearchOptions", store: str, sheet: Path | None) -> None:
    """Print a line a hit and where the sheet is; where there are no hits, what an item would have to be."""
    if hits:
        _print_hits(hits)
    else:
        conditions = [" with any of these words"] * (hits.close is False)
        conditions += [f" within {options.radius} bits"] * (options.radius is not None)
        conditions += [f" that passes {options.where}"] * (options.where is not None)
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
        bits = "–" if hit.distance is None else str(hit.distance)
        match = "–" if hit.match is None else f"{100 * hit.match:.2g} %"
        rows.append([printable(hit.id), bits, match, hit.text, ", ".join(hit.labels)])
        if hit.duplicates is not None:
            rows[-1].append(str(len(hit.duplicates) or ""))
    print_table(title, header + ["duplicates"] * (hits[0].duplicates is not None), rows)
