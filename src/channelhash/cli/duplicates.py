"""``channelhash duplicates``"""

from typing import TYPE_CHECKING

import typer

from channelhash.cli.options import AsJson, Modality, SearchableStore, Sheet, TrustCode, Where
from channelhash.cli.output import print_json, print_table, printable
from channelhash.cli.photos import Exclude, open_searched

if TYPE_CHECKING:
    from channelhash.search.duplicates import DuplicateGroup

# Groups of a table or a sheet, and ids of a group there; JSON has all.
_GROUPS, _IDS = 50, 8


def duplicates(
    store: SearchableStore,
    radius: int | None = typer.Option(
        None,
        help="Bits in which codes differ at most; 0 for equal ones. By default any number where pictures decide, "
        "elsewhere a 16th of all, at least 3.",
    ),
    modality: Modality | None = typer.Option(None, help="Modality whose codes count; images if there are any."),
    where: Where = None,
    pictures: bool = typer.Option(True, help="Compare pictures; without, near codes are enough."),
    exclude: Exclude = [],
    sheet: Sheet = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Find groups of near-duplicates: pictures that are copies of each other.

    The largest group comes first. Example: channelhash duplicates photos.store --sheet groups.png
    """
    from channelhash.search.duplicates import draw_groups, find_duplicates

    opened, _, problems = open_searched(store, exclude=exclude)
    groups = find_duplicates(opened, radius, modality.value if modality else None, where, pictures)
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
