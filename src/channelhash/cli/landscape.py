"""``channelhash landscape``"""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson
from channelhash.cli.output import print_json
from channelhash.cli.stopping import when_stopped
from channelhash.errors import InputError


def landscape(
    out: Path = typer.Option(Path("landscape.html"), help="HTML page to write."),
    plots: Path | None = typer.Option(None, help="Folder for the paper's figure as PNG and SVG."),
    as_json: AsJson = False,
) -> None:
    """Draw what a pair costs under SCH and DSCH, over similarity and distance: a page with sliders, and plots.

    The page is one file and needs no network: open it in a browser.

    Example: channelhash landscape --out landscape.html --plots plots
    """
    from channelhash.lab.experiments.landscape import write_page

    if out.is_dir():
        raise InputError(f"--out {out}: is a folder; name the page, such as {out / 'landscape.html'}")
    if plots and plots.exists() and not plots.is_dir():
        raise InputError(f"--plots {plots}: is a file; name a folder")
    when_stopped("finished pictures are kept")
    write_page(out)
    paths: list[Path] = []
    if plots:
        from channelhash.lab.experiments.landscape import write_landscapes

        paths = write_landscapes(plots)
    if as_json:
        print_json({"page": str(out), "plots": [str(path) for path in paths]})
        return
    typer.echo(f"Page in {out}; open it in a browser")
    for path in paths:
        typer.echo(f"Plot in {path}")
