"""The picture of the architecture, drawn from the code: packages by floor, who imports whom, and
the way of the data.

Floors are read from the table in CONTRIBUTING.md, imports from the syntax trees of all modules
(those inside functions too), and each step of the data's way is a function whose annotations say
what it takes and gives. `tests/test_architecture.py` holds the code to the rule that the picture
shows.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "channelhash"

Imports = dict[str, set[str]]
Floors = dict[str, int]


class Step(NamedTuple):
    """One step of the data's way.

    Attributes:
        function: what makes it, as ``module.function`` or ``module.Class.method`` below
            ``channelhash``.
        takes: the type of an argument of it, as its annotation writes it.
        gives: the type that it returns.
        shown: what that is, in words.
    """

    function: str
    takes: str
    gives: str
    shown: str


#: Row of the picture -> (where it begins, its steps).
WAY: dict[str, tuple[str, list[Step]]] = {
    "learn": (
        "files",
        [
            Step("data.table.load_table", "Path", "Records", "Records"),
            Step("training.inputs.prepare_inputs", "Records", "Tensor", "input tensors"),
            Step("models.hash_model.HashModel.forward", "Tensor", "Tensor", "outputs (n, k)"),
            Step("losses.base.HashLoss.forward", "OutputsByModality", "Tensor", "loss"),
        ],
    ),
    "measure": (
        "Records",
        [
            Step("models.hash_model.encode_records", "Records", "CodeSet", "CodeSet"),
            Step("metrics.report.count_tasks", "CodeSet", "HammingHistogram", "histograms"),
            Step("metrics.report.report", "HammingHistogram", "TaskReport", "scores"),
            Step("lab.experiments.tables.losses_table", "Result", "Table", "tables"),
        ],
    ),
    "search": (
        "raw items",
        [
            Step("models.description.Model.encode", "RawItems", "PackedCodes", "packed codes"),
            Step("search.store.Store.add", "PackedCodes", "None", "Store"),
            Step("search.store.Store.search", "PackedCodes", "Answers", "Answers"),
            Step("search.hits.search_hits", "Store", "Hits", "hits, for people"),
        ],
    ),
}


def read_floors(table: str) -> Floors:
    """Package or module -> floor, from the rows ``| floor | `name`, `name` … |`` of
    CONTRIBUTING.md.
    """
    floors = {}
    for floor, names in re.findall(r"^\| (\d) \|(.*)\|$", table, flags=re.MULTILINE):
        for name in re.findall(r"`(\w+)(?:/|\.py)`", names):
            floors[name] = int(floor)
    return floors


def read_imports(package: Path = PACKAGE) -> Imports:
    """Package or module directly below ``channelhash`` -> those that it imports anywhere in its
    code.

    The front door (``__init__``, ``__main__``) belongs to no floor and is left out.
    """
    units = {
        path.stem
        for path in package.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    units = {unit for unit in units if not unit.startswith("__") or unit == "_version"}
    imports: Imports = {unit: set() for unit in sorted(units)}
    for path in sorted(package.rglob("*.py")):
        unit = path.relative_to(package).parts[0].removesuffix(".py")
        if unit in units:
            named = {word for name in _imported(path) for word in name.split(".")[1:2]}
            imports[unit] |= named & units - {unit}
    return imports


def _imported(path: Path) -> Iterable[str]:
    """Return the dotted names below ``channelhash`` that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "channelhash":
            yield from (f"channelhash.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("channelhash."):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("channelhash."))


#: Floors from the ground that all may import; the picture shows no arrows to them.
GROUND = 2


def drawn_edges(imports: Imports, floors: Floors) -> list[tuple[str, str]]:
    """List the imports that the picture shows: none of the `GROUND`, and none that others imply
    (A→B→C implies A→C).
    """
    above = {
        unit: {other for other in others if floors[other] > GROUND}
        for unit, others in imports.items()
        if floors[unit] > GROUND
    }
    reached: dict[str, set[str]] = {}

    def reach(unit: str) -> set[str]:
        if unit not in reached:
            reached[unit] = set()  # an import in a circle ends here
            reached[unit] = above[unit].union(*(reach(other) for other in above[unit]))
        return reached[unit]

    return [
        (unit, other)
        for unit, others in above.items()
        for other in sorted(others)
        if not any(other in reach(between) for between in others - {other})
    ]


_WIDTH, _LEFT, _FLOOR, _BOX = 1180, 56, 84, 36
_INK, _LINE, _IMPORT, _DATA = "#1f2933", "#9fb3c8", "#7b93ad", "#D55E00"
_TINTS = (
    "#eef1f4",
    "#e8f1fb",
    "#e6f5ef",
    "#fdf3e1",
    "#f8e9f2",
    "#ece9f8",
    "#e3eef0",
    "#f4efe6",
    "#eef1f4",
    "#e8f1fb",
)


def architecture_svg(
    imports: Imports, floors: Floors, way: Mapping[str, tuple[str, list[Step]]] = WAY
) -> str:
    """Return the drawing as SVG."""
    places = _places(floors)
    top_of_way = max(floors.values()) * _FLOOR + 20
    height = top_of_way + 84 * len(way) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" '
        'font-family="system-ui, sans-serif" role="img">',
        "<title>Packages by floor with their imports, and the way of the data</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{_DATA}"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="white"/>',
    ]
    for floor in sorted(set(floors.values())):
        y = _floor_top(floor, floors)
        parts.append(
            f'<rect x="8" y="{y}" width="{_WIDTH - 16}" height="{_FLOOR - 26}" rx="6" '
            f'fill="{_TINTS[floor]}"/>'
        )
        parts.append(
            f'<text x="26" y="{y + 39}" font-size="18" font-weight="700" '
            f'fill="{_LINE}">{floor}</text>'
        )
    parts += [_edge(places[unit], places[other]) for unit, other in drawn_edges(imports, floors)]
    parts += [_box(*places[unit], unit, (PACKAGE / unit).is_dir()) for unit in places]
    for number, (name, (begin, steps)) in enumerate(way.items()):
        parts += _lane(top_of_way + 84 * number, name, begin, steps)
    return "\n".join([*parts, "</svg>\n"])


def _floor_top(floor: int, floors: Floors) -> int:
    return 10 + (max(floors.values()) - floor) * _FLOOR


def _places(floors: Floors) -> dict[str, tuple[float, float, float]]:
    """Return unit -> (left edge, top, width); a floor's units fill its width in the order of the
    table.
    """
    places = {}
    for floor in set(floors.values()):
        units = [unit for unit in floors if floors[unit] == floor]
        widths = [30 + 8.4 * len(unit) for unit in units]
        space = _WIDTH - 24 - _LEFT - sum(widths)
        gap = min(190.0, space / max(1, len(units) - 1)) if len(units) > 1 else 0.0
        x = _LEFT + (space - gap * (len(units) - 1)) / 2
        for unit, width in zip(units, widths, strict=True):
            places[unit] = (x, _floor_top(floor, floors) + 15.0, width)
            x += width + gap
    return places


def _edge(importer: tuple[float, float, float], imported: tuple[float, float, float]) -> str:
    x1, y1 = importer[0] + importer[2] / 2, importer[1] + _BOX
    x2, y2 = imported[0] + imported[2] / 2, imported[1]
    if importer[1] == imported[1]:  # on one floor: an arc below the boxes
        y2 += _BOX
        curve = (
            f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + 30:.0f} {x2:.0f} {y2 + 30:.0f} {x2:.0f} {y2:.0f}"
        )
    else:
        bend = min(60.0, (y2 - y1) / 2)
        curve = (
            f"M{x1:.0f} {y1:.0f}C{x1:.0f} {y1 + bend:.0f} {x2:.0f} {y2 - bend:.0f} {x2:.0f} "
            f"{y2:.0f}"
        )
    return f'<path d="{curve}" fill="none" stroke="{_IMPORT}" stroke-width="1.1" opacity="0.75"/>'


def _box(x: float, y: float, width: float, name: str, is_package: bool) -> str:
    weight = 650 if is_package else 400
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{_BOX}" rx="5" fill="white" '
        f'stroke="{_LINE}"/>'
        f'<text x="{x + width / 2:.0f}" y="{y + 23:.0f}" font-size="14" font-weight="{weight}" '
        f'fill="{_INK}" '
        f'text-anchor="middle">{escape(name)}</text>'
    )


def _lane(y: float, name: str, begin: str, steps: list[Step]) -> list[str]:
    """One row of the data's way: what there is, an arrow with the function that goes on from it,
    what that gives.
    """
    width, x = 112.0, 96.0
    arrow = (_WIDTH - 16 - x - width * (len(steps) + 1)) / len(steps)
    middle = y + 40
    parts = [
        (
            f'<text x="14" y="{middle + 5:.0f}" font-size="15" font-weight="650" '
            f'fill="{_DATA}">{escape(name)}</text>'
        )
    ]
    for shown, step in zip([begin, *(step.shown for step in steps)], [None, *steps], strict=True):
        if step:
            words = step.function.split(".")
            package, function = (
                words[0],
                ".".join(words[-2:] if words[-2][0].isupper() else words[-1:]),
            )
            parts.append(
                f'<path d="M{x + 3:.0f} {middle:.0f}H{x + arrow - 3:.0f}" stroke="{_DATA}" '
                'stroke-width="2" '
                f'marker-end="url(#tip)"/>'
                f'<text x="{x + arrow / 2:.0f}" y="{middle - 9:.0f}" fill="{_INK}" font-size="12" '
                f'text-anchor="middle">{escape(function)}</text><text x="{x + arrow / 2:.0f}" '
                f'y="{middle + 17:.0f}" font-size="11" fill="#627d98" '
                f'text-anchor="middle">{escape(package)}</text>'
            )
            x += arrow
        parts.append(
            f'<rect x="{x:.0f}" y="{middle - 19:.0f}" width="{width:.0f}" height="38" rx="19" '
            'fill="#fff4ec" '
            f'stroke="{_DATA}"/><text x="{x + width / 2:.0f}" y="{middle + 5:.0f}" font-size="13" '
            f'fill="{_INK}" '
            f'text-anchor="middle">{escape(shown)}</text>'
        )
        x += width
    return parts


def draw() -> str:
    """Draw the package as it is."""
    floors = read_floors((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    return architecture_svg(read_imports(), floors)
