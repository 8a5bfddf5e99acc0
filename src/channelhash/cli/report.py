"""``channelhash report``"""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson, TrustCode
from channelhash.cli.output import print_json
from channelhash.cli.stopping import when_stopped


def report(
    folder: Path = typer.Argument(..., metavar="DIR", help="Folder of a run or of an experiment."),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page about a run or an experiment, DIR/report.html, that needs no other file.

    How good it is beside chance, retrieval examples, training curve, plots, scores, data, health of the codes,
    configuration, environment, and the command to repeat it. The page loads nothing and can be passed on as it is.

    Example: channelhash report runs/table
    """
    from channelhash.lab.report import write_report

    when_stopped("the page is written at the end")
    path = write_report(folder)
    if as_json:
        print_json({"report": path})
    else:
        typer.echo(f"Report in {path}")
