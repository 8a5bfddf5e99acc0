"""``channelhash data …``"""

from enum import StrEnum
from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Seed, SkipBad
from channelhash.cli.output import messages, percent, print_json, print_table, progress_bars

app = typer.Typer(help="Make, look at and check data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def synthesize(
    root: Path = typer.Argument(..., help="Folder to write to."),
    images: int = typer.Option(3000, "--images", help="Number of pictures."),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Draw the embedded data set in MIRFLICKR-25k's own file layout. An interrupted call goes on where it was.

    Example: channelhash data synthesize data/synthetic --images 3000
    """
    from channelhash.data.synthetic import synthesize as draw

    with progress_bars() as progress:
        draw(root, images, seed, progress("draw pictures"))
    if as_json:
        print_json({"root": str(root), "images": images, "seed": seed})
    else:
        typer.echo(f"{images} pictures with hashtags and labels in {root}")
        typer.echo(f"Next: channelhash data describe synthetic --root {root} --set n_images={images}")


@app.command()
def download(
    name: str = typer.Argument(..., help="mirflickr25k or nuswide."),
    root: Path = typer.Option(..., help="Folder of the data set."),
    as_json: AsJson = False,
) -> None:
    """Fetch and unpack the official archives. A cut connection is taken up again; what is there is left alone.

    NUS-WIDE's pictures have no official address: its lists, labels and tags are fetched, and the pictures that you
    have put there are counted.

    Example: channelhash data download mirflickr25k --root data/mirflickr25k
    """
    from channelhash.data.download import download as fetch
    from channelhash.data.nuswide import IMAGE_LAYOUTS, count_images

    with progress_bars() as progress:
        fetched = fetch(name, root, progress=progress)
    result: dict[str, object] = {"root": str(root), "fetched": fetched}
    if name == "nuswide":
        there, listed = count_images(root)
        result |= {"pictures": there, "listed": listed}
    if as_json:
        print_json(result)
        return
    typer.echo(f"Fetched {', '.join(fetched)}" if fetched else f"Everything is in {root} already")
    if name == "nuswide":
        typer.echo(f"{there} of {listed} pictures are there. They have no official address: ask the authors, or use a")
        typer.echo(f"copy of your own, as one of {', '.join(IMAGE_LAYOUTS)} below {root}")
    typer.echo(f"Next: channelhash data describe {name} --root {root}")


class AugmentLevel(StrEnum):
    """Hardness levels of the paper's augmentation table."""

    easy = "easy"
    medium = "medium"
    hard = "hard"


@app.command()
def preview(
    folder: Path = typer.Argument(..., help="Folder of pictures (any depth)."),
    augment: AugmentLevel = typer.Option(AugmentLevel.hard, help="Hardness level."),
    out: Path = typer.Option(Path("preview.png"), help="PNG to write."),
    pictures: int = typer.Option(6, help="Number of pictures, the first of the folder."),
    seed: Seed = 0,
) -> None:
    """A contact sheet of what the augmentation of a level does to pictures.

    Example: channelhash data preview images --augment hard --out hard.png
    """
    from channelhash.augment.preview import write_preview
    from channelhash.data.folder import first_images

    write_preview(first_images(folder, pictures), augment.value, out, seed)
    typer.echo(f"{out}")


@app.command("explain-text")
def explain_text(
    text: str = typer.Argument("", help="Hashtags or words to read."),
    file: Path | None = typer.Option(None, help="Instead, a file with a text a line: count what happens to its words."),
    word_vectors: Path | None = typer.Option(None, help="word2vec file; SymSpell's English words if none is given."),
    cache: Path = typer.Option(Path("cache"), help="Folder for the cache of the word vectors."),
    as_json: AsJson = False,
) -> None:
    """How words are read: kept as known, corrected, split, or dropped.

    Example: channelhash data explain-text "goldengate brigde 2007"
    """
    from channelhash.text.trace_words import explain

    with progress_bars() as progress:
        result = explain(text, file, word_vectors, cache, progress("read word vectors"))
    if as_json:
        print_json(result)
        return
    if file is None:
        rows = [[w["word"], w["outcome"], " ".join(w["tokens"]), " ".join(w["unknown"])] for w in result["words"]]
        print_table("Reading", ["word", "outcome", "tokens", "unknown parts"], rows)
    total = max(1, result["counts"]["words"])
    rows = [[name, str(n), percent(n / total)] for name, n in result["counts"].items()]
    print_table("Words", ["outcome", "words", "%"], rows)


@app.command()
def describe(
    name: str = typer.Argument(..., help="Kind of data, data.kind in a configuration: table, coco, features, …"),
    root: Path | None = typer.Option(None, help="Folder of the data (for a table: of its pictures)."),
    path: Path | None = typer.Option(None, help="The file, for kinds that are one."),
    settings: list[str] = typer.Option([], "--set", help="Further key of the section data: key=value."),
    skip_bad: SkipBad = False,
    decode: bool = typer.Option(False, "--decode", help="Decode every picture to find unreadable ones."),
    as_json: AsJson = False,
) -> None:
    """Counts of a data set, and what is wrong with it.

    Example: channelhash data describe table --path items.csv --root images
    """
    from channelhash.config import read_data_section
    from channelhash.data import DATA_KINDS
    from channelhash.data.collection import DataSource
    from channelhash.data.describe import describe as count
    from channelhash.errors import InputError
    from channelhash.runs.build import make_splits

    overrides = [*settings, *(["skip_bad=true"] if skip_bad else [])]
    overrides += [f"{key}={value}" for key, value in (("root", root), ("path", path)) if value is not None]
    source, split = read_data_section(name, overrides)
    problems = []
    splits = None
    with progress_bars() as progress:
        records = DataSource(name, vars(source), split.only_labels, split.without_labels).load(progress("read"))
        try:
            splits = make_splits(split, records)
        except InputError as error:  # a doctor counts what there is, also where it does not suffice
            problems.append(str(error))
        result = count(
            records, splits, DATA_KINDS[name].expected, decode, progress("decode pictures") if decode else None
        )
    result["problems"] += problems
    if as_json:
        print_json(result)
        return
    typer.echo(f"{result['found']} samples found, {result['usable']} usable")
    typer.echo(f"A random pair shares a label with probability {percent(result['chance'])} %")
    if result["removed"]:
        print_table("Removed", ["reason", "samples"], [[reason, str(n)] for reason, n in result["removed"].items()])
    expected = result["expected"]
    counts = {"found": result["found"], "usable": result["usable"], **result["partitions"]}
    rows = [[name, str(n), str(expected.get(name, ""))] for name, n in counts.items()]
    print_table("Counts", ["what", "rows", "official"], rows)
    ordered = sorted(result["labels"].items(), key=lambda pair: -pair[1])
    rows = [[label, str(n), percent(n / result["usable"])] for label, n in ordered]
    print_table("Labels", ["label", "samples", "%"], rows)
    for key in ("labels_per_item", "words_per_text"):
        if result[key]:
            typer.echo(f"{key.replace('_', ' ')}: " + ", ".join(f"{k} {v:.1f}" for k, v in result[key].items()))
    for line in result["problems"]:
        messages.print(f"problem: {line}")
