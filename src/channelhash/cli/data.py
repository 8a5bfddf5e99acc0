"""``channelhash data …``"""

from pathlib import Path

import typer

from channelhash.cli.output import messages, percent, print_json, print_table, progress_stages

app = typer.Typer(help="Make, look at and check data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def synthesize(
    root: Path = typer.Argument(..., help="Folder to write to."),
    images: int = typer.Option(3000, "--images", help="Number of pictures."),
    seed: int = typer.Option(0, help="Seed of everything drawn."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
) -> None:
    """Draw the embedded data set in MIRFLICKR-25k's own file layout. An interrupted call goes on where it was.

    Example: channelhash data synthesize data/synthetic --images 3000
    """
    from channelhash.data.synthetic import synthesize as draw

    with progress_stages() as stages:
        draw(root, images, seed, stages("draw pictures"))
    if as_json:
        print_json({"root": str(root), "images": images, "seed": seed})
    else:
        typer.echo(f"{images} pictures with hashtags and labels in {root}")
        typer.echo(f"Next: channelhash data describe synthetic --root {root} --set n_images={images}")


@app.command()
def describe(
    name: str = typer.Argument(..., help="Kind of data: synthetic, table, coco, features, mirflickr25k."),
    root: Path | None = typer.Option(None, help="Folder of the data (for a table: of its pictures)."),
    path: Path | None = typer.Option(None, help="The file, for kinds that are one."),
    settings: list[str] = typer.Option([], "--set", help="Further key of the section data: key=value."),
    skip_bad: bool = typer.Option(False, "--skip-bad", help="Leave bad rows out; they are counted and listed."),
    decode: bool = typer.Option(False, "--decode", help="Decode every picture to find unreadable ones."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
) -> None:
    """Counts of a data set, and what is wrong with it.

    Example: channelhash data describe table --path items.csv --root images
    """
    from channelhash.config import read_data_section
    from channelhash.data import DATA_KINDS
    from channelhash.data.describe import describe as count
    from channelhash.errors import InputError
    from channelhash.run import load_data, make_splits

    overrides = [*settings, *(["skip_bad=true"] if skip_bad else [])]
    overrides += [f"{key}={value}" for key, value in (("root", root), ("path", path)) if value is not None]
    source, split = read_data_section(name, overrides)
    with progress_stages() as stages:
        records = load_data(name, source, stages("read"))
    problems = []
    splits = None
    try:
        splits = make_splits(split, records)
    except InputError as error:  # a doctor counts what there is, also where it does not suffice
        problems.append(str(error))
    result = count(records, splits, DATA_KINDS[name].expected, decode)
    result["problems"] += problems
    if as_json:
        print_json(result)
        return
    typer.echo(f"{result['found']} samples found, {result['usable']} usable")
    typer.echo(f"A random pair shares a label with probability {percent(result['chance'])} %")
    if result["removed"]:
        print_table("Removed", ["reason", "samples"], [[reason, str(n)] for reason, n in result["removed"].items()])
    print_table("Partitions", ["partition", "rows"], [[part, str(n)] for part, n in result["partitions"].items()])
    ordered = sorted(result["labels"].items(), key=lambda pair: -pair[1])
    rows = [[label, str(n), percent(n / result["usable"])] for label, n in ordered]
    print_table("Labels", ["label", "samples", "%"], rows)
    for key in ("labels_per_item", "words_per_text"):
        if result[key]:
            typer.echo(f"{key.replace('_', ' ')}: " + ", ".join(f"{k} {v:.1f}" for k, v in result[key].items()))
    for line in result["problems"]:
        messages.print(f"problem: {line}")
