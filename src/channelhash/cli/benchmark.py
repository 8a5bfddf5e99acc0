"""``channelhash benchmark …``"""

from pathlib import Path

import typer

from channelhash.cli.output import print_json, print_table

app = typer.Typer(
    help="Measure speed here, side by side with an alternative.", no_args_is_help=True, rich_markup_mode=None
)


@app.command()
def augment(
    pictures: Path | None = typer.Option(None, help="Folder of pictures; drawn ones of 500 x 375 pixels by default."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
) -> None:
    """Pictures a second through decode, resize and each augmentation level, and the loader's use of the cores.

    Example: channelhash benchmark augment
    """
    from channelhash.benchmarks.augment import benchmark_augment
    from channelhash.benchmarks.timing import machine
    from channelhash.data.folder import first_pictures

    rows = benchmark_augment(first_pictures(pictures, 1024) if pictures else None)
    if as_json:
        print_json({"rows": rows, "machine": machine()})
        return
    cells = []
    for row in rows:
        other = "" if row["baseline_seconds"] is None else f"{row['baseline_seconds']:.3f}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        cells.append([row["what"], row["size"], f"{row['seconds']:.3f}", row["baseline"], other, ratio])
    print_table(machine(), ["what", "size", "s", "alternative", "its s", "ratio"], cells)
