"""``channelhash index``"""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from channelhash.cli.index_care import backup, check, refit, repair
from channelhash.cli.index_transfer import export_faiss, import_faiss, push
from channelhash.cli.options import (
    AsJson,
    CodesMethod,
    GroupedCommands,
    SearchableStore,
    Seed,
    Stem,
    TableRoot,
    TrustCode,
    Where,
)
from channelhash.cli.output import print_json, print_table, progress_bars, say, say_left_out
from channelhash.cli.stopping import same_command, when_stopped
from channelhash.errors import InputError
from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    from channelhash.indexing.changes import Indexed

app = typer.Typer(
    cls=GroupedCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create stores of codes, add items and delete them; check, repair and back up.",
)

_STORE = typer.Argument(
    ...,
    help="A store's folder, the pictures' folder that it belongs to, or an address (postgresql://…, milvus+http://…).",
)
_EXCLUDE = typer.Option(
    [], metavar="PATTERN", help="Leave out such files or folders, as in a .gitignore: '*.gif', 'raw/'. Repeatable."
)
_CAPTIONS = typer.Option(
    None, help="Captions of the folder's pictures: a table with image and text, or lines name#0<TAB>caption."
)
_SOURCE = (
    "Folder of pictures (any depth), table, file of features, file of codes, or a YAML configuration with its section "
    "data."
)


@app.command()
def create(
    store: str = _STORE,
    source: Path | None = typer.Argument(None, help=_SOURCE),
    encoder: list[str] = typer.Option(
        [],
        help="What reads pictures and texts: photo (the default), openclip:NAME/WEIGHTS, features, a run's folder, or "
        "image=KIND:WHAT and text=KIND:WHAT.",
    ),
    model: Path | None = typer.Option(None, help="A run's folder or a saved model; the same as --encoder RUN."),
    codes: CodesMethod = typer.Option(
        CodesMethod.auto,
        help="How items get codes: auto takes the encoder's own (learned) where it has some, else fits cca-itq where "
        "captions exist, itq elsewhere.",
    ),
    bits: int = typer.Option(256, min=1, help="Code length."),
    seed: Seed = 0,
    projections: bool | None = typer.Option(
        None,
        help="Keep the real-valued outputs beside the bits, a byte each, to order what the bits have found; by default "
        "where codes are fitted to the items.",
    ),
    stem: Stem | None = typer.Option(None, help="Let words match their other forms in this language: horse, horses."),
    root: TableRoot = None,
    exclude: list[str] = _EXCLUDE,
    captions: Path | None = _CAPTIONS,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Create a store with the items of SOURCE; codes are fitted to them, or are those of a run or of a file of codes.

    Example: channelhash index create photos.store photos --captions captions.csv
    """
    from channelhash.models.description import extra_of, read_words
    from channelhash.search.photo_folders import holds_files, is_store

    if source is not None and _holds_codes(source, model or encoder or root or captions or exclude or projections):
        from channelhash.indexing.code_files import create_from_codes

        with progress_bars() as progress:
            stored = create_from_codes(store, source, progress("write"), stem.value if stem else "")
        _report(store, stored, as_json)
        return
    read = read_words(encoder) if encoder else None
    with naming_extra("train" if model else extra_of(read)):
        from channelhash.indexing.fit import NewCodes
        from channelhash.indexing.stores import create_store, default_address, read_again

    if source is None and holds_files(store):  # pictures, then, whose store lies with them
        source, store = Path(store), default_address(Path(store))
    if model is not None and encoder:
        raise InputError("--model: names a run, and --encoder another encoder; give one of them")
    new = NewCodes(str(model) if model is not None else read, codes.value, bits, seed)

    def go_on() -> list[str]:
        if source is None or not ("://" in store or is_store(Path(store))):
            return same_command()
        given: dict[str, list[Any]] = {"--root": [root], "--exclude": exclude, "--captions": [captions]}
        options = [str(part) for name, values in given.items() for value in values if value for part in (name, value)]
        run = ["--model", str(model)] if model else []
        return ["channelhash", "index", "add", store, str(source), *run, *options]

    when_stopped(f"{store} keeps the items written so far", go_on)
    with progress_bars() as progress:
        named = source is not None or exclude or captions is not None
        items = read_again(store, source, root, exclude, captions) if named else None
        done = create_store(store, new, items, progress, projections, stem.value if stem else "")
    _report(store, done, as_json)


@app.command()
def add(
    store: str = _STORE,
    source: Path | None = typer.Argument(None, help=f"{_SOURCE} By default the folder that the store was made from."),
    model: Path | None = typer.Option(
        None, help="For a store without a model: the run that made its codes, or a run that extends it."
    ),
    root: TableRoot = None,
    exclude: list[str] = _EXCLUDE,
    captions: Path | None = _CAPTIONS,
    prune: bool = typer.Option(False, "--prune", help="Remove items whose picture is no longer in the folder."),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Encode what is new or changed in SOURCE and leave the rest as it is; the same command continues a killed job.

    Example: channelhash index add photos.store photos
    """
    if source is not None and _holds_codes(source, model or root or captions or exclude or prune):
        from channelhash.indexing.code_files import add_codes

        with progress_bars() as progress:
            stored = add_codes(store, source, progress("write"))
        _report(store, stored, as_json)
        return
    with naming_extra("train" if model else "photos"):
        from channelhash.indexing.stores import add_to_store, read_again

    when_stopped(f"{store} keeps the items written so far")
    with progress_bars() as progress:
        items = read_again(store, source, root, exclude, captions)
        done = add_to_store(store, items, model, progress, prune)
    _report(store, done, as_json)


@app.command()
def delete(
    store: str = _STORE,
    ids: list[str] = typer.Argument(None, metavar="ID", help="Ids of items to remove; or give --where."),
    where: Where = None,
    as_json: AsJson = False,
) -> None:
    """Remove items with all their codes; their picture files stay.

    Example: channelhash index delete photos.store 2019/beach.jpg 2019/dog.jpg
    """
    from channelhash.search.query import open_filled_store

    if bool(ids) == (where is not None):
        raise InputError("give the ids of the items to delete, or --where with a filter")
    opened = open_filled_store(store)
    unknown = [name for name in ids or [] if name not in opened]
    deleted = opened.delete(list(dict.fromkeys(ids)) if ids else opened.ids(where))
    for name in unknown:
        say(f"no item has the id {name}")
    left = len(opened)
    opened.close()
    if as_json:
        print_json({"deleted": deleted, "unknown": unknown, "items": left})
    else:
        typer.echo(f"{deleted} items deleted, {left} left in {store}")


@app.command()
def info(
    store: SearchableStore,
    as_json: AsJson = False,
) -> None:
    """Describe what a store holds.

    Example: channelhash index info photos.store
    """
    from channelhash.indexing.changes import fit_of
    from channelhash.search.query import open_filled_store

    opened = open_filled_store(store)
    facts = {**opened.info(), **fit_of(opened), "labels": opened.label_counts()}
    opened.close()
    if as_json:
        print_json(facts)
    else:
        print_table(str(facts.pop("address")), ["", ""], [[name, _in_words(value)] for name, value in facts.items()])


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count:,}" for name, count in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value or "unknown")


def _holds_codes(source: Path, given: object) -> bool:
    """Return whether a source is a file of codes, with which ``given`` options do not go."""
    from channelhash.codes.parquet import is_code_file

    if not is_code_file(source):
        return False
    if given:
        raise InputError(f"{source}: holds codes; leave out options that say how pictures and texts are encoded")
    return True


def _report(store: str, done: "Indexed", as_json: bool) -> None:
    say_left_out([*done.problems, *(f"{count:,} × {reason}" for reason, count in done.skipped.items())])
    if as_json:
        print_json({"store": store, **asdict(done)})
        return
    counts = f"{done.added} items added, {done.replaced} replaced, {done.unchanged} unchanged"
    counts += f", {done.moved} moved" * bool(done.moved)
    counts += f", {done.pruned} pruned" * bool(done.pruned) + f", {len(done.problems)} left out" * bool(done.problems)
    rate = f" ({done.rate:,.0f} items/s)" if done.added + done.replaced else ""
    typer.echo(f"{counts}; {done.seconds:.1f} s{rate}\n{done.items} items in {store}")


for command in (push, export_faiss, import_faiss, check, repair, backup, refit):
    app.command()(command)
