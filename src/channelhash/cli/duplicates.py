"""``channelhash duplicates``: groups of near-duplicates, and what becomes of them."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from channelhash.cli import options
from channelhash.cli.output import print_json, print_table, printable, progress_bars, say
from channelhash.cli.search import Making, Sheet, open_searched
from channelhash.errors import InputError

if TYPE_CHECKING:
    from channelhash.search.duplicates import DuplicateGroup
    from channelhash.search.sqlite.decisions import Moved

# Groups of a table or a sheet, and items of a group there; JSON has all.
_GROUPS, _ITEMS = 50, 8


def duplicates(
    store: options.SearchableStore,
    radius: int | None = typer.Option(None, help="Bits in which codes differ at most; any where pictures decide."),
    modality: options.Modality | None = typer.Option(None, help="Modality whose codes count; images if there are any."),
    where: options.Where = None,
    pictures: bool = typer.Option(True, help="Compare pictures; without, near codes are enough."),
    rest: bool = typer.Option(False, "--rest", help="Print the paths of all but the one to keep of each group."),
    null: bool = typer.Option(False, "-0", "--null", help="End the paths of --rest by zero bytes, for `xargs -0`."),
    move: Path | None = typer.Option(None, metavar="FOLDER", help="Where --yes moves what --rest prints."),
    yes: bool = typer.Option(False, "--yes", help="Move the files; without, only say which."),
    different: list[str] = typer.Option([], "--not", metavar="ID", help="These are no copies of each other; repeated."),
    keep: list[str] = typer.Option([], metavar="ID", help="All of these stay, and are not listed again; repeated."),
    undo: bool = typer.Option(False, "--undo", help="Take the last move, --not or --keep back."),
    exclude: options.Exclude = [],
    sheet: Sheet = None,
    trust_code: options.TrustCode = False,
    as_json: options.AsJson = False,
) -> None:
    """Find groups of near-duplicates: pictures that are copies of each other; keep one of each and move the rest.

    The largest group comes first. Example: channelhash duplicates photos.store --move ~/copies
    """
    from channelhash.search.duplicates import draw_groups, find_duplicates
    from channelhash.search.sqlite import decisions

    if sum(map(bool, (rest, move, different, keep, undo))) > 1:
        raise InputError("--rest, --move, --not, --keep and --undo: each does something else; give one of them")
    opened, problems = open_searched(store, Making(exclude=exclude))
    with opened:
        if different or keep:
            decisions.decide(opened, "different" if different else "keep", different or keep)
            return
        if undo:
            _report(decisions.undo(opened), "moved back", as_json)
            return
        with progress_bars(f"{store} keeps what was read and compared so far") as progress:
            groups = find_duplicates(opened, radius, modality, where, pictures, progress)
        if move is not None:
            others = {group.keeper: [name for name in group.ids if name != group.keeper] for group in groups}
            moved = decisions.move_rest(opened, others, move, dry_run=not yes)
            _report(moved, "moved" if yes else "would be moved, by --yes", as_json)
            return
        if sheet and groups:
            draw_groups(opened, groups[:_GROUPS], sheet, _ITEMS)
    if rest:
        for photo in (photo for group in groups for photo in group.photos if photo.id != group.keeper):
            typer.echo((photo.path or photo.id) + ("\0" if null else "\n"), nl=False)
    elif as_json:
        lists = {"groups": "ids", "distances": "distances", "keepers": "keeper", "reasons": "reason"}
        columns = {name: [getattr(group, key) for group in groups] for name, key in lists.items()}
        photos = [[photo._asdict() for photo in group.photos] for group in groups]
        print_json({**columns, "photos": photos, "problems": problems})
    elif groups:
        _print_groups(groups)
        if sheet:
            typer.echo(f"Pictures in {sheet}")
    else:
        typer.echo(f"No near-duplicates{'' if radius is None else f' within {radius} bits'} in {store}")


def _report(moved: "Moved | None", what: str, as_json: bool) -> None:
    """Print what became of files, a line each, and why others stay."""
    if as_json:
        print_json(moved._asdict() if moved else {})
    elif moved is None:
        typer.echo("There is no decision to take back")
    elif moved.kind != "move":
        typer.echo(f"Took back --{'not' if moved.kind == 'different' else 'keep'}")
    else:
        for name, path in moved.paths.items():
            typer.echo(printable(f"{name} -> {path}"))
        for line in moved.problems:
            say(line)
        typer.echo(f"{len(moved.paths)} files {what}")


def _print_groups(groups: "list[DuplicateGroup]") -> None:
    """Print a line for each of the first groups: which one to keep, why, and the others."""
    n_items = sum(len(group.ids) for group in groups)
    rows = []
    for group in groups[:_GROUPS]:
        cells = {photo.id: printable(photo.id) + (f" ({photo.facts})" if photo.facts else "") for photo in group.photos}
        first = cells.pop(group.keeper)
        more = [f"… and {len(cells) - _ITEMS} more"] if len(cells) > _ITEMS else []
        others = "\n".join([*list(cells.values())[:_ITEMS], *more])
        rows.append([str(len(group.ids)), str(max(group.distances)), first, group.reason, others])
    first = f", the first {_GROUPS} of them (--json prints all)" if len(groups) > _GROUPS else ""
    header = ["items", "bits apart", "to keep", "because", "the rest"]
    print_table(f"{n_items} items in {len(groups)} groups{first}", header, rows)
