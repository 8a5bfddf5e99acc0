"""``channelhash data …``"""

from pathlib import Path
from typing import Any

import typer

from channelhash.cli import shared
from channelhash.errors import InputError, argument
from channelhash.utils.typed_settings import apply_overrides

app = shared.command_group("Make, inspect and check data sets.")


@app.command("synthesize")
def _synthesize(
    out: Path = typer.Argument(..., help="Folder to write to."),
    images: int = typer.Option(3000, "--images", help="Number of images."),
    seed: shared.Seed = 0,
    as_json: shared.AsJson = False,
) -> None:
    """Draw the embedded data set in MIRFLICKR-25k's own file layout. The same command continues an
    interrupted job.

    Example: channelhash data synthesize data/synthetic --images 3000
    """
    from channelhash.data import synthetic

    with shared.progress_bars(f"finished pictures are kept in {out}") as progress:
        synthetic.synthesize(out, images, seed, progress("draw pictures"))
    drawn = f"{images} pictures with hashtags and labels in {out}"
    command = f"channelhash data describe synthetic --data {out} --set data.n_images={images}"
    result = {"out": str(out), "images": images, "seed": seed}
    shared.show(result, as_json, drawn, f"Next: {command}")


@app.command("download")
def _download(
    name: str = typer.Argument(..., help="Data set: mirflickr25k or nuswide."),
    out: Path = typer.Option(..., help="Folder to write to."),
    as_json: shared.AsJson = False,
) -> None:
    """Fetch and unpack the official archives. An interrupted download is resumed; complete files
    stay.

    NUS-WIDE's images have no official address: its lists, labels and tags are fetched, and the
    images that you provide are counted.

    Example: channelhash data download mirflickr25k --out data/mirflickr25k
    """
    from channelhash.data.flickr import IMAGE_LAYOUTS, count_images
    from channelhash.lab import download as archives

    with shared.progress_bars(f"all bytes fetched so far are kept in {out}") as progress:
        fetched = archives.download(name, out, progress=progress)
    result: dict[str, object] = {"out": str(out), "fetched": fetched}
    lines = [f"Fetched {', '.join(fetched)}" if fetched else f"Everything is already in {out}"]
    if name == "nuswide":
        n_images, n_listed = count_images(out)
        result |= {"pictures": n_images, "listed": n_listed}
        count = f"{n_images} of {n_listed} pictures found"
        lines.append(f"{count}. They have no official address: ask the authors, or use a")
        lines.append(f"copy of your own, as one of {', '.join(IMAGE_LAYOUTS)} below {out}")
    shared.show(result, as_json, *lines, f"Next: channelhash data describe {name} --data {out}")


@app.command("explain-text")
def _explain_text(
    text: str = typer.Argument(..., help="Hashtags or words."), as_json: shared.AsJson = False
) -> None:
    """Show how words are read: kept, corrected, split, or dropped. The vocabulary is SymSpell's
    English words.

    Example: channelhash data explain-text "goldengate brigde 2007"
    """
    from channelhash.text.word_vectors import english_reader

    words = [reading._asdict() for reading in english_reader().read(text)]
    rows = [
        [word["word"], word["outcome"], " ".join(word["tokens"]), " ".join(word["unknown"])]
        for word in words
    ]
    header = ["word", "outcome", "tokens", "unknown parts"]
    shared.print_either({"words": words}, as_json, shared.print_table, "Reading", header, rows)


@app.command("describe")
def _describe(
    name: str = typer.Argument(
        ..., help="Kind of data, data.kind in a configuration: table, coco, features, …"
    ),
    data: Path | None = typer.Option(None, help="File or folder of the data."),
    root: shared.TableRoot = None,
    settings: shared.Overrides = [],
    skip_bad: shared.SkipBad = False,
    decode: bool = typer.Option(
        False, "--decode", help="Decode every image to find unreadable ones."
    ),
    as_json: shared.AsJson = False,
) -> None:
    """Count the items and labels of a data set, and list its problems.

    Example: channelhash data describe table --data items.csv --root images
    """
    from channelhash.data import collection, resolve_data_kind
    from channelhash.data.registry import check_data, place_key

    values: dict[str, Any] = {"data": {}}
    apply_overrides(values, *settings)
    if len(values) > 1:
        raise InputError(f"{argument('overrides')}: keys of the section data alone are read here")
    options = [("root", root), (place_key(name), data), ("skip_bad", skip_bad)]
    values["data"] |= {key: value for key, value in options if value}
    source, split = check_data(name, values["data"])
    problems = []
    splits = None
    with shared.progress_bars() as progress:
        chosen = collection.DataSource(name, vars(source), split.only_labels, split.without_labels)
        records = chosen.load(progress("read"))
        try:
            splits = split.draw(records)
        except InputError as error:  # counted all the same: this command is for diagnosis
            problems.append(str(error))
        decoded = progress("decode pictures") if decode else None
        result = collection.describe(records, splits, resolve_data_kind(name).expected, decoded)
    result["problems"] += problems
    shared.print_either(result, as_json, _print_description, result)


def _print_description(result: dict[str, Any]) -> None:
    """Print the counts of a data set, and its problems."""
    typer.echo(f"{result['found']} samples found, {result['usable']} usable")
    if result["protocol"]:
        typer.echo(result["protocol"])
    _print_what_to_measure(result)
    if result["removed"]:
        removed = [[reason, str(n)] for reason, n in result["removed"].items()]
        shared.print_table("Removed", ["reason", "samples"], removed)
    expected = result["expected"]
    counts = {"found": result["found"], "usable": result["usable"], **result["partitions"]}
    rows = [[name, str(n), str(expected.get(name, ""))] for name, n in counts.items()]
    shared.print_table("Counts", ["what", "rows", "official"], rows)
    if result["labels"]:
        _print_labels(result["labels"], result["usable"])
        _print_summary("labels per item", result["labels_per_item"])
    _print_summary("words per text", result["words_per_text"])
    for line in result["problems"]:
        shared.say(f"problem: {line}")


def _print_what_to_measure(result: dict[str, Any]) -> None:
    """Print how often chance finds a similar item, or what can be measured without labels."""
    if result["labels"]:
        chance = shared.percent(result["chance"])
        typer.echo(f"A random pair shares a label with probability {chance} %")
    elif result["measures"]:
        typer.echo(
            "No labels: pairs of an image and a text can be learned (loss contrastive, dsch …), "
            "and measured by\n"
            "Recall@1, 5, 10 and the median rank of each query's own counterpart; mAP needs labels"
        )


def _print_labels(labels: dict[str, int], n_items: int) -> None:
    """Print how many items have each label, the most frequent one first."""
    by_count = sorted(labels.items(), key=lambda pair: -pair[1])
    rows = [[label, str(n), shared.percent(n / n_items)] for label, n in by_count]
    shared.print_table("Labels", ["label", "samples", "%"], rows)


def _print_summary(name: str, summary: dict[str, float]) -> None:
    if summary:
        figures = ", ".join(f"{figure} {value:.1f}" for figure, value in summary.items())
        typer.echo(f"{name}: {figures}")
