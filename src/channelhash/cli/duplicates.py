"""``channelhash duplicates``."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from channelhash.cli import shared
from channelhash.cli.search import Sheet, draw_sheet
from channelhash.cli.stores import IndexOptions, open_searched
from channelhash.errors import InputError

if TYPE_CHECKING:
    from channelhash.duplicates import DuplicateGroup, Moved
    from channelhash.search.store import Store

#: Most groups in a table or on a sheet; JSON has all.
_GROUPS = 50
#: Most items of a group there; JSON has all.
_ITEMS = 8


def duplicates(
    store: shared.SearchableStore,
    radius: int | None = typer.Option(
        None, help="Bits in which codes differ at most; any number where images decide."
    ),
    modality: shared.Modality | None = typer.Option(
        None, help="Modality whose codes count; images if there are any."
    ),
    where: shared.Where = None,
    pictures: bool = typer.Option(True, help="Compare images; without, near codes are enough."),
    rest: bool = typer.Option(
        False, "--rest", help="Print the paths of all but the one to keep of each group."
    ),
    null: bool = typer.Option(
        False, "-0", "--null", help="End each path of --rest with a zero byte, for `xargs -0`."
    ),
    move: Path | None = typer.Option(
        None, metavar="FOLDER", help="Where --yes moves what --rest prints."
    ),
    yes: bool = typer.Option(False, "--yes", help="Move the files; without, only say which."),
    different: list[str] = typer.Option(
        [], "--not", metavar="ID", help="These are no copies of each other. May be repeated."
    ),
    keep: list[str] = typer.Option(
        [], metavar="ID", help="All of these stay, and are not listed again. May be repeated."
    ),
    undo: bool = typer.Option(False, "--undo", help="Take the last move, --not or --keep back."),
    exclude: shared.Exclude = [],
    sheet: Sheet = None,
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Find groups of near-duplicates: images that are copies of each other; keep one of each and
    move the rest.

    The largest group comes first. Example: channelhash duplicates photos --move ~/copies
    """
    from channelhash.duplicates import decide, draw_groups, find_duplicates, undo_last

    if sum(map(bool, (rest, move, different, keep, undo))) > 1:
        raise InputError(
            "--rest, --move, --not, --keep and --undo: each does something else; give one of them"
        )
    opened, problems = open_searched(store, IndexOptions(exclude=exclude))
    with opened:
        if different:
            decide(opened, "different", different)
            return
        if keep:
            decide(opened, "keep", keep)
            return
        if undo:
            _report(undo_last(opened), "moved back", as_json)
            return
        with shared.progress_bars(f"{store} keeps what was read and compared so far") as progress:
            groups = find_duplicates(opened, radius, modality, where, pictures, progress)
        if move is not None:
            _move(opened, groups, move, yes, as_json)
            return
        if rest:
            _print_rest(groups, null)
        elif as_json:
            shared.print_json(_as_columns(groups) | {"problems": problems})
        else:
            _print_groups(groups, store, radius)
        if sheet and groups:
            draw = partial(draw_groups, opened, groups[:_GROUPS], most=_ITEMS)
            draw_sheet(draw, sheet, named=not (rest or as_json))


def _move(
    store: "Store", groups: "list[DuplicateGroup]", folder: Path, yes: bool, as_json: bool
) -> None:
    """Move all but the one to keep of each group, or only say which; say what became of them."""
    from channelhash.duplicates import move_rest

    moved = move_rest(store, {group.keeper: group.rest for group in groups}, folder, not yes)
    for group in groups:
        for name in group.unsure:
            line = f"{name}: stays, unsure which is the original, it or {group.keeper}"
            moved.problems.append(line)
    _report(moved, "moved" if yes else "would be moved, by --yes", as_json)


def _as_columns(groups: "list[DuplicateGroup]") -> dict[str, Any]:
    """Return groups as JSON has them: a list for each of their attributes."""
    columns: dict[str, Any] = {}
    lists = {"groups": "ids", "distances": "distances", "keepers": "keeper", "reasons": "reason"}
    for name, key in {**lists, "unsure": "unsure"}.items():
        columns[name] = [getattr(group, key) for group in groups]
    columns["photos"] = []
    for group in groups:
        columns["photos"].append([photo.as_dict() for photo in group.photos])
    return columns


def _print_rest(groups: "list[DuplicateGroup]", null: bool) -> None:
    """Print the path of each file that can go, one a line or with a zero byte behind each."""
    end = "\0" if null else "\n"
    for group in groups:
        paths = {photo.id: photo.path for photo in group.photos}
        for name in group.rest:
            typer.echo((paths[name] or name) + end, nl=False)


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


def _print_groups(groups: "list[DuplicateGroup]", store: str, radius: int | None) -> None:
    """Print a row for each of the first groups, or that there are none."""
    if not groups:
        within = "" if radius is None else f"within {radius} bits "
        typer.echo(f"No near-duplicates {within}in {store}")
        return
    title = f"{sum(len(group.ids) for group in groups)} items in {len(groups)} groups"
    if len(groups) > _GROUPS:
        title += f", the first {_GROUPS} of them (--json prints all)"
    header = ["items", "bits apart", "to keep", "because", "the rest"]
    shared.print_table(title, header, [_group_row(group) for group in groups[:_GROUPS]])


def _group_row(group: "DuplicateGroup") -> list[str]:
    """Return the cells of a group: which one to keep, why, and the others."""
    cells = {}
    for photo in group.photos:
        facts = f" ({photo.facts})" if photo.facts else ""
        doubt = ", unsure" if photo.id in group.unsure else ""
        cells[photo.id] = shared.printable(photo.id) + facts + doubt
    keeper = cells.pop(group.keeper)
    rest = list(cells.values())[:_ITEMS]
    if len(cells) > _ITEMS:
        rest.append(f"… and {len(cells) - _ITEMS} more")
    n_items = str(len(group.ids))
    return [n_items, str(max(group.distances)), keeper, group.reason, "\n".join(rest)]
