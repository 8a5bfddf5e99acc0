"""``channelhash demo``"""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Quick
from channelhash.cli.output import percent, print_json, print_table, print_tasks, progress_bars, say
from channelhash.cli.stopping import when_stopped


def demo(
    out: Path = typer.Option(Path("demo"), help="Folder for everything that the demo writes."),
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Run the whole job on the embedded data set: draw it, train three losses, compare them, answer queries.

    With --quick it takes under a minute.

    Example: channelhash demo --quick
    """
    from channelhash.runs.demo import run_demo

    when_stopped(f"finished parts are kept in {out}")
    with progress_bars() as progress:
        result = run_demo(out, quick, progress, say)
    if as_json:
        print_json(
            {
                "losses": result.tasks,
                "runs": {loss: str(run) for loss, run in result.runs.items()},
                "sheets": {kind: str(path) for kind, path in result.sheets.items()},
                "texts": {text: fit._asdict() for text, fit in result.fits.items()},
                "rows": result.rows,
                "seconds": round(result.seconds, 1),
            }
        )
        return
    rows = result.rows
    title = f"Tie-aware mAP in %, {rows['query']} queries against {rows['retrieval']} items, {rows['train']} trained on"
    print_tasks(title, result.tasks, "loss")
    answered = [
        [text, f"{fit.fitting} of {fit.shown}", percent(fit.fitting / fit.shown), percent(fit.chance)]
        for text, fit in result.fits.items()
    ]
    print_table(
        "Pictures found that show all of what the words ask for",
        ["words", "fit", "%", "chance, %"],
        answered,
        numeric=True,
    )
    run = result.runs["dsch"]
    typer.echo(f"Took {result.seconds:.0f} s. Written:")
    for what, path in (
        ("answers to typed words", result.sheets["text"]),
        ("answers to pictures (by the texts nearest to them)", result.sheets["image"]),
        ("runs: configuration, log, checkpoints, codes, figures", run.parent),
    ):
        typer.echo(f"  {path}  {what}")
    typer.echo("Next, words of your own, and photographs of your own (pip install 'channelhash[photos]'):")
    typer.echo(f'  channelhash search {run} --text "boats on the sea"')
    typer.echo('  channelhash search FOLDER "boats on the sea" --sheet answers.png')
