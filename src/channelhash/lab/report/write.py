"""The report of a folder: of a run, or of a grid of runs."""

from pathlib import Path

from channelhash.errors import InputError
from channelhash.lab.report.grid_page import grid_page
from channelhash.lab.report.page import render
from channelhash.lab.report.run_page import run_page
from channelhash.utils.files import write_text


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a run's or a grid's folder; return its path.

    The top of the page says what is missing or unreadable (an unfinished run, a file of another version).

    Raises:
        InputError: the folder is neither, or its ``config.yaml`` or ``grid.json`` cannot be read.
    """
    if (folder / "grid.json").is_file():
        page = grid_page(folder)
    elif (folder / "config.yaml").is_file():
        page = run_page(folder)
    else:
        raise InputError(
            f"{folder}: neither a run's folder (no config.yaml) nor a grid's (no grid.json); "
            "give one that `train` or `experiment` wrote"
        )
    path = folder / "report.html"
    write_text(path, render(page))
    return path
