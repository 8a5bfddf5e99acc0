"""``channelhash search`` and ``channelhash duplicates``"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from channelhash.cli import options
from channelhash.cli.output import print_json, print_table, printable, say
from channelhash.cli.photos import open_searched
from channelhash.errors import InputError

if TYPE_CHECKING:
    from channelhash.search.duplicates import DuplicateGroup
    from channelhash.search.hits import Hits, SearchOptions

By = Literal["all", "image", "text", "words"]
# Groups of a table or a sheet, and ids of a group there; JSON has all.
_GROUPS, _IDS = 50, 8


def search(
    store: options.SearchableStore,
    question: str | None = typer.Argument(None, help='Words: "a beach" or, in parts, \'beach "two dogs"^2 -people\'.'),
    text: str | None = typer.Option(None, help="The query in words, as an option."),
    image: Path | None = typer.Option(None, help="Search with a picture."),
    like: str | None = typer.Option(None, help="Search with the codes of the item that has this id."),
    minus: list[str] = typer.Option([], help="Words or a picture that are not wanted. May be repeated."),
    minus_like: list[str] = typer.Option([], help="Id of an item that is not wanted. May be repeated."),
    by: By | None = typer.Option(None, help="What to search: codes, words or all. With --like alone: with which code."),
    modality: options.Modality | None = typer.Option(None, help="Modality to search; images if there are any."),
    k: int = typer.Option(10, "-k", help="Number of results."),
    radius: int | None = typer.Option(None, help="Return all items within this many bits, instead of -k."),
    where: options.Where = None,
    rerank: int | None = typer.Option(None, help="Reorder this many nearest items by the query's real-valued outputs."),
    collapse: bool = typer.Option(False, "--collapse", help="Fold near-duplicates into the first of them."),
    model: options.StoreModel = None,
    encoder: options.Encoder = [],
    captions: options.Captions = None,
    exclude: options.Exclude = [],
    sheet: options.Sheet = None,
    trust_code: options.TrustCode = False,
    as_json: options.AsJson = False,
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
    settings = SearchOptions(k, radius, None, modality, where, rerank)
    opened, loaded, problems = open_searched(store, model, encoder, captions, exclude, by == "words")
    if collapse:
        settings = replace(settings, collapse=default_radius(opened.n_bits or 0))
    hits = search_store(
        opened,
        settings,
        text=text,
        image=image,
        like=like,
        by=by,
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
        _print_answers(hits, settings, store, sheet)


def _print_answers(hits: "Hits", settings: "SearchOptions", store: str, sheet: Path | None) -> None:
    """Print a line a hit and where the sheet is; where there are no hits, what an item would have to be."""
    if hits:
        _print_hits(hits)
    else:
        conditions = [" with any of these words"] * (hits.close is False)
        conditions += [f" within {settings.radius} bits"] * (settings.radius is not None)
        conditions += [f" that passes {settings.where}"] * (settings.where is not None)
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


def duplicates(
    store: options.SearchableStore,
    radius: int | None = typer.Option(None, help="Bits in which codes differ at most; any where pictures decide."),
    modality: options.Modality | None = typer.Option(None, help="Modality whose codes count; images if there are any."),
    where: options.Where = None,
    pictures: bool = typer.Option(True, help="Compare pictures; without, near codes are enough."),
    exclude: options.Exclude = [],
    sheet: options.Sheet = None,
    trust_code: options.TrustCode = False,
    as_json: options.AsJson = False,
) -> None:
    """Find groups of near-duplicates: pictures that are copies of each other.

    The largest group comes first. Example: channelhash duplicates photos.store --sheet groups.png
    """
    from channelhash.search.duplicates import draw_groups, find_duplicates

    opened, _, problems = open_searched(store, exclude=exclude)
    groups = find_duplicates(opened, radius, modality, where, pictures)
    if sheet and groups:
        draw_groups(opened, groups[:_GROUPS], sheet, _IDS)
    opened.close()
    if as_json:
        found = {"groups": [group.ids for group in groups], "distances": [group.distances for group in groups]}
        print_json({**found, "problems": problems})
        return
    if not groups:
        within = "" if radius is None else f" within {radius} bits"
        typer.echo(f"No near-duplicates{within} in {store}")
        return
    _print_groups(groups)
    if sheet:
        typer.echo(f"Pictures in {sheet}")


def _print_groups(groups: "list[DuplicateGroup]") -> None:
    """Print a line for each of the first groups: its size, the farthest item's distance from the first, its ids."""
    n_items = sum(len(group.ids) for group in groups)
    rows = []
    for group in groups[:_GROUPS]:
        more = len(group.ids) - _IDS
        ids = list(map(printable, group.ids[:_IDS])) + [f"… and {more} more"] * (more > 0)
        rows.append([str(len(group.ids)), str(max(group.distances)), "\n".join(ids)])
    first = f", the first {_GROUPS} of them (--json prints all)" if len(groups) > _GROUPS else ""
    print_table(f"{n_items} items in {len(groups)} groups{first}", ["items", "bits apart", "ids"], rows)
