"""``channelhash search``, ``explain`` and ``duplicates``.

A plain folder of photographs may stand in the place of a store: it is indexed first, and then only
what changed.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

import channelhash as ch
from channelhash.cli import shared
from channelhash.errors import InputError
from channelhash.models.description import extra_of, read_words
from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    from channelhash.duplicates import DuplicateGroup, Moved, Photo
    from channelhash.explanation.api import Explanation
    from channelhash.indexing.stores import Index
    from channelhash.search.hits import Hits, SearchOptions

_By = Literal["all", "image", "text", "words"]
_Modality = Literal["image", "text"]
# Typer takes no list of literals.
_Side = StrEnum("_Side", ["image", "text"])
_Sheet = Annotated[
    Path | None, typer.Option(help="Also draw the result as a PNG file with this name.")
]
StoreModel = Annotated[
    Path | None, typer.Option(help="Run or saved model that made the codes, if the store has none.")
]


class Making(NamedTuple):
    """The model of a store of photographs, or else its encoder, and their captions and
    exclusions.
    """

    model: Path | None = None
    encoder: Sequence[str] = ()
    captions: Path | None = None
    exclude: Sequence[str] = ()


# Lines about what cannot be read that a search begins with; JSON has all.
_MOST = 20
# Photographs that --open shows.
_OPENED = 3
# Groups of a table or a sheet, and items of a group there; JSON has all.
_GROUPS = 50
_ITEMS = 8


def search(
    store: shared.SearchableStore,
    question: str | None = typer.Argument(
        None, help='Words: "a beach" or, in parts, \'beach "two dogs"^2 -people\'.'
    ),
    text: str | None = typer.Option(None, help="The query in words, as an option."),
    image: Path | None = typer.Option(None, help="Search with a picture."),
    like: str | None = typer.Option(
        None, help="Search with the codes of the item that has this id."
    ),
    minus: list[str] = typer.Option(
        [], help="Words or a picture that are not wanted. May be repeated."
    ),
    minus_like: list[str] = typer.Option(
        [], help="Id of an item that is not wanted. May be repeated."
    ),
    by: _By | None = typer.Option(
        None, help="Search codes, words or all. With --like alone: by which code."
    ),
    modality: _Modality | None = typer.Option(
        None, help="Modality to search; images if there are any."
    ),
    k: int = typer.Option(10, "-k", help="Number of results."),
    radius: int | None = typer.Option(
        None, help="Return all items within this many bits, instead of -k."
    ),
    where: shared.Where = None,
    rerank: int | None = typer.Option(
        None, help="Reorder this many nearest items by the query's real-valued outputs."
    ),
    collapse: bool | None = typer.Option(
        None, help="Fold near-duplicates into the first: pictures, unless --radius."
    ),
    model: StoreModel = None,
    encoder: shared.Encoder = [],
    captions: shared.Captions = None,
    exclude: shared.Exclude = [],
    sheet: _Sheet = None,
    view: bool = typer.Option(
        False, "--open", help="Open the sheet, or else the first photographs."
    ),
    everything: bool = typer.Option(
        False, "--all", help="Also show answers that are less likely to fit."
    ),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print nothing but paths, one a line."),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Find the items that answer words, a picture, another item, or several of them together.

    Example: channelhash search photos.store "a dog on a beach -people" -k 5
    """
    from channelhash.search.hits import Hits, SearchOptions
    from channelhash.search.query import search_store

    if question is not None and text is not None:
        raise InputError("--text: the query is given twice; leave one of them out")
    text = text if question is None else question
    settings = SearchOptions(k, radius, None, modality, where, rerank)
    opened, problems = _open_searched(
        store, Making(model, encoder, captions, exclude), by == "words"
    )
    first = next(opened.listed(), None)  # of a store of features, codes alone would decide
    pictures = (
        "image" in opened.modalities
        and modality != "text"
        and first is not None
        and "image" in first.metadata
    )
    if collapse or (collapse is None and pictures and radius is None and rerank is None):
        settings = replace(settings, collapse=True)
    unlike = [Path(word) if Path(word).is_file() else word for word in minus]
    hits = search_store(
        opened,
        settings,
        text=text,
        image=image,
        like=like,
        by=by,
        minus=unlike,
        minus_like=minus_like,
        model=model,
    )
    shown = Hits(hit for hit in hits if everything or hit.fits)
    opened.close()
    if hits.note:
        shared.say(hits.note)
    if hits.phrases:
        narrowed = ", ".join(f'{phrase.means} ("{phrase.words}")' for phrase in hits.phrases)
        shared.say(
            f"Narrowed to {narrowed}; what stands in double quotes within the question is searched "
            "for as words"
        )
    if hits.suggestion:
        shared.say(f"Did you mean: {hits.suggestion}")
    if as_json:
        results = [hit.as_dict() for hit in hits]
        remarks = {"close": hits.close, "did_you_mean": hits.suggestion, "problems": problems}
        shared.print_json({"results": results, **remarks, "narrowed": hits.narrowed()})
    elif quiet:
        for hit in shown:
            typer.echo(shared.printable(hit.image or hit.id))
    else:
        _print_answers(hits, shown, settings, store)
    if sheet:
        query = text if text is not None else image or like or ""
        _draw_sheet(partial(shown.draw, query), sheet, named=not (as_json or quiet))
    if view:
        files = [hit.image for hit in shown if hit.image][:_OPENED]
        _open_files([str(sheet.absolute())] if sheet else files)


def _draw_sheet(draw: Callable[[Path], None], sheet: Path, named: bool) -> None:
    """Draw a sheet of what has been printed, and name its file.

    What is printed reaches its reader first, so that no failure to draw hides it.
    """
    sys.stdout.flush()
    if sheet.exists() and not sheet.is_file():
        raise InputError(f"--sheet {sheet}: is no file; name a file to draw into")
    draw(sheet)
    if named:
        typer.echo(f"Pictures in {sheet}")


def _open_files(files: Sequence[str]) -> None:
    """Open files with the viewer of this system, up to the first that it cannot open."""
    sys.stdout.flush()
    command = {"darwin": "open", "win32": "explorer"}.get(sys.platform, "xdg-open")
    for file in files:
        try:
            subprocess.run(
                [command, file],
                check=sys.platform != "win32",  # Windows' explorer always returns 1
                capture_output=True,
                stdin=subprocess.DEVNULL,  # or a browser of a terminal would wait for a key
            )
        except (OSError, subprocess.CalledProcessError):
            shared.say(
                f"{file}: this machine has no viewer for it; `channelhash serve` shows answers in "
                "a browser"
            )
            return


def _print_answers(hits: "Hits", shown: "Hits", settings: "SearchOptions", store: str) -> None:
    """Print a line for each hit that is shown; where there are no hits, what an item would have to
    be.
    """
    if not hits:
        words = " with any of these words" if hits.close is False else ""
        near = "" if settings.radius is None else f" within {settings.radius} bits"
        passing = "" if settings.where is None else f" that passes {settings.where}"
        typer.echo(f"0 answers: {store} has no item{words}{near}{passing}")
        return
    unlikely = len(hits) - len(shown)
    if shown:
        named = "file" if all(hit.image.endswith(hit.id) for hit in shown) else "id"
        columns = {
            "rank": [str(place) for place in range(1, len(shown) + 1)],
            named: [shared.printable(hit.id) for hit in shown],
            "fits" if shown[0].fit is not None else "closer than": _closeness(shown),
            "text": [hit.text for hit in shown],
            "text in it": [shared.printable(hit.quote) for hit in shown],
            "labels": [", ".join(hit.labels) for hit in shown],
            "duplicates": [str(len(hit.duplicates or ()) or "") for hit in shown],
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        answers = f"{len(shown)} answer{'' if len(shown) == 1 else 's'}"
        title = f"nothing close; {answers} from farther off" if hits.close is False else answers
        shared.print_table(title, list(columns), list(zip(*columns.values(), strict=True)))
    if unlikely:
        typer.echo(
            f"{f'{unlikely} more,' if shown else f'Nothing fits; {unlikely}'} less likely (--all)"
        )


def _closeness(hits: "Hits") -> list[str]:
    """Return, for each hit, how likely it fits; or a share of the items that it is closer than,
    never more than for the one above: hits are in an order finer than that of bits, so one may be a
    few bits closer than the one above.
    """
    if all(hit.match is None or hit.by_words for hit in hits):
        return []
    cells = []
    share = 99.9
    for hit in hits:
        share = share if hit.match is None or hit.by_words else min(share, 100 - 100 * hit.match)
        near = f"{share:.1f} % of all" if hit.fit is None else f"{100 * hit.fit:.0f} %"
        cells.append("(found by words)" if hit.by_words else near)
    return cells


def explain(
    store: str = typer.Argument(
        ..., metavar="RUN", help="A run's folder, or a store or file of codes (see `search`)."
    ),
    image: list[Path] = typer.Option([], help="A picture of the pair."),
    text: list[str] = typer.Option([], help="Words of the pair."),
    like: list[str] = typer.Option([], help="An item of the store, by its id."),
    by: list[_Side] = typer.Option(
        [], help="For each --like: modality of its code; image if there are any."
    ),
    model: StoreModel = None,
    cells: int = typer.Option(
        8, help="Cells along a picture's short side; the hidden patch moves by one cell."
    ),
    patch: int = typer.Option(2, help="Side of the hidden patch in cells."),
    fill: Literal["grey", "blur"] = typer.Option(
        "grey", help="Content of the patch: grey, or the picture blurred."
    ),
    maps: bool = typer.Option(
        True, "--maps/--no-maps", help="Hide parts of pictures and leave out words in turn."
    ),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Explain why two items match: which bits agree, what they mean, which parts of a picture and
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
    rows = []
    for bit in sorted(explanation.bits, key=lambda bit: -abs(bit.share)):
        values = " ".join(str(int(value)) for value in bit.values)
        strengths = " ".join("–" if value is None else f"{value:.2f}" for value in bit.strengths)
        # labels that the first item's value speaks for and against, with |φ|
        sign = 1 if bit.values[0] else -1
        labels = explanation.bit_labels(bit)[:3]
        names = [f"{'' if sign * phi > 0 else 'not '}{name} {abs(phi):.2f}" for name, phi in labels]
        meaning = ", ".join(names) or "no clear meaning"
        agrees = "agrees" if bit.agrees else "differs"
        rows.append([str(bit.number), values, agrees, strengths, f"{bit.share:+.3f}", meaning])
    header = ["bit", "values", "", "strength", "share", "meaning"]
    shared.print_table("The bits, those that count most first", header, rows)
    for side, words in zip(explanation.sides, explanation.words, strict=True):
        if words:
            table = [
                [word.word, f"{word.influence:+.2f}", ", ".join(map(str, word.flips))]
                for word in words
            ]
            shared.print_table(
                f"Without a word of {side.name!r}",
                ["word", "bits farther", "bits that flip"],
                table,
            )
    for remark in explanation.remarks:
        typer.echo(f"({remark})")


def _open_searched(
    store: str, making: Making, words_alone: bool = False
) -> tuple["ch.Store", Sequence[str]]:
    """Return a store that has items, and what cannot be read.

    The store of a plain folder is brought up to date first.

    For words alone, which need no model, the store of a folder is searched as it is.

    Other arguments and errors as in `bring_up_to_date`; or there is nothing to search.
    """
    as_it_is = words_alone and not any(making[1:]) and ch.search.find_store(Path(store))
    photos = None if as_it_is else bring_up_to_date(store, making)
    if photos and len(photos.store):
        return photos.store, photos.indexed.problems
    return ch.search.open_filled_store(store), ()


def bring_up_to_date(store: str, making: Making) -> "Index | None":
    """Make a store of a plain folder of photographs, or bring its store up to date; None for other
    addresses and where the store can only be read.

    Raises:
        InputError: an encoder, captions or exclusions are given for anything but a plain folder; or
            as `photos.stores.index`.
    """
    from channelhash.search.sqlite.folder import StoreFolder

    if not ch.search.holds_files(store):
        for name, value in making._replace(model=None)._asdict().items():
            if value:
                raise InputError(
                    f"--{name}: goes with a plain folder of pictures, {store} is none; leave it out"
                )
        return None
    place = ch.search.find_store(Path(store))
    if place is not None and not StoreFolder(place).writable:
        if making.exclude:
            raise InputError(
                f"--exclude: {place} can only be read, so that nothing can be left out of it; make "
                "a store of your own with `channelhash index create`"
            )
        shared.say(f"{place}: can only be read, so that new pictures are not found")
        return None
    word = read_words(list(making.encoder)) if making.encoder else None
    with naming_extra("train" if making.model else extra_of(word)):
        from channelhash.indexing.stores import index

    with shared.progress_bars(f"{store} keeps the items indexed so far") as progress:
        photos = index(store, **making._asdict() | {"encoder": word}, prune=True, progress=progress)
    shared.say_left_out(photos.indexed.problems, _MOST)
    if changes := photos.indexed.changes(photos.store.address):
        shared.say_left_out(
            [f"{count:,} × {reason}" for reason, count in photos.indexed.skipped.items()]
        )
        shared.say(changes)
    return photos


def duplicates(
    store: shared.SearchableStore,
    radius: int | None = typer.Option(
        None, help="Bits in which codes differ at most; any where pictures decide."
    ),
    modality: _Modality | None = typer.Option(
        None, help="Modality whose codes count; images if there are any."
    ),
    where: shared.Where = None,
    pictures: bool = typer.Option(True, help="Compare pictures; without, near codes are enough."),
    rest: bool = typer.Option(
        False, "--rest", help="Print the paths of all but the one to keep of each group."
    ),
    null: bool = typer.Option(
        False, "-0", "--null", help="End the paths of --rest by zero bytes, for `xargs -0`."
    ),
    move: Path | None = typer.Option(
        None, metavar="FOLDER", help="Where --yes moves what --rest prints."
    ),
    yes: bool = typer.Option(False, "--yes", help="Move the files; without, only say which."),
    different: list[str] = typer.Option(
        [], "--not", metavar="ID", help="These are no copies of each other; repeated."
    ),
    keep: list[str] = typer.Option(
        [], metavar="ID", help="All of these stay, and are not listed again; repeated."
    ),
    undo: bool = typer.Option(False, "--undo", help="Take the last move, --not or --keep back."),
    exclude: shared.Exclude = [],
    sheet: _Sheet = None,
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Find groups of near-duplicates: pictures that are copies of each other; keep one of each and
    move the rest.

    The largest group comes first. Example: channelhash duplicates photos.store --move ~/copies
    """
    from channelhash.duplicates import decide, draw_groups, find_duplicates, move_rest, undo_last

    if sum(map(bool, (rest, move, different, keep, undo))) > 1:
        raise InputError(
            "--rest, --move, --not, --keep and --undo: each does something else; give one of them"
        )
    opened, problems = _open_searched(store, Making(exclude=exclude))
    with opened:
        if different or keep:
            decide(opened, "different" if different else "keep", different or keep)
            return
        if undo:
            _report(undo_last(opened), "moved back", as_json)
            return
        with shared.progress_bars(f"{store} keeps what was read and compared so far") as progress:
            groups = find_duplicates(opened, radius, modality, where, pictures, progress)
        if move is not None:
            copies = {group.keeper: [photo.id for photo in _rest_of(group)] for group in groups}
            moved = move_rest(opened, copies, move, dry_run=not yes)
            _report(moved, "moved" if yes else "would be moved, by --yes", as_json)
            return
        within = "" if radius is None else f"within {radius} bits "
        _print_duplicates(groups, problems, f"{within}in {store}", rest, null, as_json)
        if sheet and groups:
            drawn = partial(draw_groups, opened, groups[:_GROUPS], most=_ITEMS)
            _draw_sheet(drawn, sheet, named=not (rest or as_json))


def _print_duplicates(
    groups: "list[DuplicateGroup]",
    problems: Sequence[str],
    searched: str,
    rest: bool,
    null: bool,
    as_json: bool,
) -> None:
    """Print groups as a table, as JSON, or as the paths of the rest; or where there are none."""
    if rest:
        _print_rest(groups, "\0" if null else "\n")
    elif as_json:
        shared.print_json(_as_columns(groups) | {"problems": problems})
    elif groups:
        _print_groups(groups)
    else:
        typer.echo(f"No near-duplicates {searched}")


def _as_columns(groups: "list[DuplicateGroup]") -> dict[str, Any]:
    """Return groups as JSON has them: a list for each of their attributes."""
    lists = {"groups": "ids", "distances": "distances", "keepers": "keeper", "reasons": "reason"}
    columns = {name: [getattr(group, key) for group in groups] for name, key in lists.items()}
    return columns | {"photos": [[photo._asdict() for photo in group.photos] for group in groups]}


def _rest_of(group: "DuplicateGroup") -> "list[Photo]":
    """Return all but the one to keep."""
    return [photo for photo in group.photos if photo.id != group.keeper]


def _print_rest(groups: "list[DuplicateGroup]", end: str) -> None:
    """Print the path of each file that can go."""
    for group in groups:
        for photo in _rest_of(group):
            typer.echo((photo.path or photo.id) + end, nl=False)


def _report(moved: "Moved | None", outcome: str, as_json: bool) -> None:
    """Print what became of files, a line each, and why others stay."""
    if as_json:
        shared.print_json(moved._asdict() if moved else {})
    elif moved is None:
        typer.echo("There is no decision to take back")
    elif moved.kind != "move":
        typer.echo(f"Took back --{'not' if moved.kind == 'different' else 'keep'}")
    else:
        for name, path in moved.paths.items():
            typer.echo(shared.printable(f"{name} -> {path}"))
        for line in moved.problems:
            shared.say(line)
        typer.echo(f"{len(moved.paths)} files {outcome}")


def _print_groups(groups: "list[DuplicateGroup]") -> None:
    """Print a line for each of the first groups: which one to keep, why, and the others."""
    n_items = sum(len(group.ids) for group in groups)
    rows = []
    for group in groups[:_GROUPS]:
        facts = {photo.id: f" ({photo.facts})" if photo.facts else "" for photo in group.photos}
        cells = {name: shared.printable(name) + known for name, known in facts.items()}
        first = cells.pop(group.keeper)
        more = [f"… and {len(cells) - _ITEMS} more"] if len(cells) > _ITEMS else []
        rest = "\n".join([*list(cells.values())[:_ITEMS], *more])
        rows.append([str(len(group.ids)), str(max(group.distances)), first, group.reason, rest])
    first = f", the first {_GROUPS} of them (--json prints all)" if len(groups) > _GROUPS else ""
    header = ["items", "bits apart", "to keep", "because", "the rest"]
    shared.print_table(f"{n_items} items in {len(groups)} groups{first}", header, rows)
