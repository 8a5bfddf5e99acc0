"""``channelhash landscape``"""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson
from channelhash.cli.output import print_json
from channelhash.errors import InputError


def landscape(
    out: Path = typer.Option(Path("landscape.html"), help="HTML page to write."),
    as_json: AsJson = False,
) -> None:
    """Draw what a pair costs under SCH and DSCH, over similarity and distance, on a page with sliders.

    The page is one file and needs no network: open it in a browser.

    Example: channelhash landscape --out landscape.html
    """
    from channelhash.lab.experiments.landscape import write_page

    if out.is_dir():
        raise InputError(f"--out {out}: is a folder; name the page, such as {out / 'landscape.html'}")
    write_page(out)
    if as_json:
        print_json({"page": str(out)})
        return
    typer.echo(f"Page in {out}; open it in a browser")
