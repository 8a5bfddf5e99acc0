"""``channelhash index``"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import channelhash as ch
from channelhash.cli import same_command, shared
from channelhash.errors import InputError
from channelhash.models.description import extra_of, fit_facts, read_words
from channelhash.utils.optional_imports import naming_extra

if TYPE_CHECKING:
    from channelhash.indexing.encode import Indexed

app = shared.command_group(
    "Create stores of codes, add items and delete them; check, repair and back up."
)

_CodesMethod = Literal["auto", "learned", "sign", "itq", "cca-itq"]
_Ocr = Annotated[
    bool | None,
    typer.Option(
        help=(
            "Read the text in images, also in stored ones; by default in a folder's new ones, if "
            "installed."
        )
    ),
]
_STORE = typer.Argument(
    ..., help="A store's folder, its images' folder, or postgresql://… or milvus+http://…."
)
_FOLDER = typer.Argument(..., help="A store's folder.")
_SOURCE = (
    "Folder of images (any depth), table, file of vectors, features or codes, or a YAML "
    "configuration (section data)."
)


@app.command("create")
def _create(
    store: str = _STORE,
    source: Path | None = typer.Argument(None, help=_SOURCE),
    encoder: shared.EncoderWords = [],
    method: _CodesMethod = typer.Option(
        "auto", help="How codes are fitted; auto: the encoder's own, else cca-itq or itq."
    ),
    bits: int = typer.Option(256, min=1, help="Code length."),
    seed: shared.Seed = 0,
    projections: bool | None = typer.Option(
        None, help="Keep outputs beside the bits; by default with fitted codes."
    ),
    root: shared.TableRoot = None,
    array: shared.Array = None,
    ids: shared.Ids = None,
    exclude: shared.Exclude = [],
    captions: shared.Captions = None,
    ocr: _Ocr = None,
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Create a store with the items of SOURCE; codes are fitted to them, or are those of a run or
    of a file of codes.

    Example: channelhash index create photos.store photos --captions captions.csv
    """
    address = ch.search.Address.parse(store)
    is_encoded = any([encoder, root, array, ids, captions, exclude, projections, ocr])
    if _put_codes(address, source, True, is_encoded, as_json):
        return
    word = read_words(encoder) if encoder else None
    with naming_extra(extra_of(word)):
        from channelhash.indexing.fit import NewCodes
        from channelhash.indexing.index import default_address
        from channelhash.indexing.stores import create_store, read_again

    # the store of a folder of images lies in it
    if source is None and address.holds_files:
        source = Path(store)
        address = ch.search.Address.parse(default_address(source))
    new = NewCodes(word, method, bits, seed)

    def go_on() -> list[str]:
        is_made = address.path is None or address.kind == "store"
        if source is None or not is_made:
            return same_command()
        run = None if new.are_fitted else new.encoder
        options = {"--model": run, "--root": root, "--captions": captions, "--ids": ids}
        return _add_command(address, source, {**options, "--array": array}, exclude)

    with shared.progress_bars(f"{address} keeps the items written so far", go_on) as progress:
        items = None
        if any([source, exclude, captions, ocr]):
            items = read_again(address, source, root, exclude, captions, ocr, array, ids)
        done = create_store(address, new, items, progress, projections)
    _report(address, done, as_json)


def _add_command(
    address: "ch.search.Address",
    source: Path,
    options: Mapping[str, object],
    exclude: Sequence[str],
) -> list[str]:
    """Return the words of the `index add` that continues a killed `index create`."""
    words = ["channelhash", "index", "add", address.text, str(source)]
    for name, value in options.items():
        if value is not None:
            words += [name, str(value)]
    for pattern in exclude:
        words += ["--exclude", pattern]
    flags = ("--ocr", "--no-ocr", "--trust-code")
    return words + [word for word in same_command() if word in flags]


@app.command("add")
def _add(
    store: str = _STORE,
    source: Path | None = typer.Argument(
        None, help=f"{_SOURCE} By default the folder that the store was made from."
    ),
    model: Path | None = typer.Option(
        None, help="For a store without a model: the run of its codes, or one extending it."
    ),
    root: shared.TableRoot = None,
    array: shared.Array = None,
    ids: shared.Ids = None,
    exclude: shared.Exclude = [],
    captions: shared.Captions = None,
    ocr: _Ocr = None,
    prune: bool = typer.Option(
        False, "--prune", help="Remove items whose image is no longer in the folder."
    ),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Encode what is new or changed in SOURCE and leave the rest as it is; the same command
    continues a killed job.

    Example: channelhash index add photos.store photos
    """
    address = ch.search.Address.parse(store)
    is_encoded = any([model, root, array, ids, captions, exclude, ocr, prune])
    if _put_codes(address, source, False, is_encoded, as_json):
        return
    with naming_extra("train" if model else "photos"):
        from channelhash.indexing.stores import add_to_store, read_again

    with shared.progress_bars(f"{address} keeps the items written so far") as progress:
        items = read_again(address, source, root, exclude, captions, ocr, array, ids)
        done = add_to_store(address, items, model, progress, prune)
    _report(address, done, as_json)


@app.command("delete")
def _delete(
    store: str = _STORE,
    ids: list[str] = typer.Argument(
        None, metavar="ID", help="Ids of items to remove; or give --where."
    ),
    where: shared.Where = None,
    as_json: shared.AsJson = False,
) -> None:
    """Remove items with all their codes; their image files stay.

    Example: channelhash index delete photos.store 2019/beach.jpg 2019/dog.jpg
    """
    if bool(ids) == (where is not None):
        raise InputError("give the ids of the items to delete, or --where with a filter")
    with ch.search.open_filled_store(store) as opened:
        unknown = [name for name in ids or [] if name not in opened]
        deleted = opened.delete(list(dict.fromkeys(ids)) if ids else opened.ids(where))
        n_items = len(opened)
    for name in unknown:
        shared.say(f"no item has the id {name}")
    result = {"deleted": deleted, "unknown": unknown, "items": n_items}
    shared.show(result, as_json, f"{deleted} items deleted, {n_items} left in {store}")


@app.command("info")
def _info(store: shared.SearchableStore, as_json: shared.AsJson = False) -> None:
    """Describe what a store holds.

    Example: channelhash index info photos.store
    """
    from channelhash.search.match import described_fit

    with ch.search.open_filled_store(store) as opened:
        facts = {
            **opened.info(),
            **fit_facts(described_fit(opened)),
            "labels": opened.label_counts(),
        }
    rows = [[name, _in_words(value)] for name, value in facts.items() if name != "address"]
    shared.print_either(facts, as_json, shared.print_table, str(facts["address"]), ["", ""], rows)


@app.command("push")
def _push(
    store: str = _STORE,
    target: str = typer.Argument(
        ..., help="Another store, such as postgresql://USER@HOST/DATABASE."
    ),
    as_json: shared.AsJson = False,
) -> None:
    """Write all items of a store into another store; after a kill, run it again.

    A password of PostgreSQL is read from the environment variable PGPASSWORD, a token of Milvus
    from MILVUS_TOKEN.

    Example: channelhash index push photos.store postgresql://postgres@localhost/photos
    """
    from channelhash.search.transfer import push

    parse = ch.search.Address.parse
    with shared.progress_bars(f"{target} keeps the items written so far") as progress:
        done = push(parse(store), parse(target), progress("push"))
    lines = [f"{done.items} items of {store} are in {target}; it holds {done.target_items}"]
    if done.without_projections:
        lines.append(f"{target} keeps no projections: it ranks by bits alone")
    shared.show({"target": target, **done._asdict()}, as_json, *lines)


@app.command("check")
def _check(store: str = _FOLDER, as_json: shared.AsJson = False) -> None:
    """Read all of a store and list what is damaged; exit 1 if anything is. Others may use the store
    meanwhile.

    Example: channelhash index check photos.store
    """
    from channelhash.search.sqlite.check import check_store

    damaged = check_store(_folder(store))
    result = {
        "store": store,
        "ok": not damaged,
        "damaged": [finding._asdict() for finding in damaged],
    }
    shared.show(result, as_json, *(dict.fromkeys(map(str, damaged)) or [f"{store} is whole"]))
    if damaged:
        if not as_json:
            shared.say(
                f"put back a backup, or keep what is whole: channelhash index repair {store}"
            )
        raise typer.Exit(1)


@app.command("repair")
def _repair(store: str = _FOLDER, as_json: shared.AsJson = False) -> None:
    """Keep all whole items of a damaged store, list the others, and make anew what can be made from
    them.

    A damaged database is kept beside the new one, as items.sqlite.damaged. Nobody else may have the
    store open.

    Example: channelhash index repair photos.store
    """
    from channelhash.search.sqlite.check import repair_store

    repaired = repair_store(_folder(store))
    damages = [str(finding) for finding in repaired.damaged]
    losses = [str(finding) for finding in repaired.lost]
    done = f"is whole again, {len(losses)} items or codes are lost" if damages else "was whole"
    lines = [f"was damaged: {line}" for line in dict.fromkeys(damages)]
    lines += [f"lost: {line}" for line in losses]
    lines.append(f"{store} {done}; it holds {repaired.n_items} items")
    shared.show(
        {"store": store, "damaged": damages, "lost": losses, "items": repaired.n_items},
        as_json,
        *lines,
    )


@app.command("backup")
def _backup(
    store: str = _FOLDER,
    to: Path = typer.Argument(
        ..., help="New folder to write; it is a store, which can be searched."
    ),
    as_json: shared.AsJson = False,
) -> None:
    """Copy a store with its model as it is now, while others may go on writing to it, and check the
    copy.

    Example: channelhash index backup photos.store backups/photos.store
    """
    from channelhash.search.sqlite.check import backup_store

    n_items, n_bytes = backup_store(_folder(store), to)
    result = {"store": store, "to": str(to), "items": n_items, "bytes": n_bytes}
    shared.show(result, as_json, f"{n_items} items of {store} are in {to}, checked")


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {count:,}" for name, count in value.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value or "unknown")


def _put_codes(
    address: "ch.search.Address", file: Path | None, is_new: bool, is_encoded: bool, as_json: bool
) -> bool:
    """Put a file of codes into a store; return False for other sources, which are encoded."""
    if file is None or file.suffix != ".parquet":
        return False
    from channelhash.codes.parquet import is_code_file

    if not is_code_file(file):
        return False
    if is_encoded:
        raise InputError(
            f"{file}: holds codes; leave out options that say how pictures and texts are encoded"
        )
    from channelhash.indexing.stores import put_codes

    with shared.progress_bars() as progress:
        done = put_codes(address, file, is_new, progress("write"))
    _report(address, done, as_json)
    return True


def _report(address: "ch.search.Address", done: "Indexed", as_json: bool) -> None:
    skipped = [f"{count:,} × {reason}" for reason, count in done.skipped.items()]
    shared.say_left_out([*done.problems, *skipped])
    for remark in done.remarks:
        shared.say(remark)
    counts = f"{done.added} items added, {done.replaced} replaced, {done.unchanged} unchanged"
    rare = {"moved": done.moved, "pruned": done.pruned, "left out": len(done.problems)}
    for name, count in rare.items():
        if count:
            counts += f", {count} {name}"
    rate = f" ({done.rate:,.0f} items/s)" if done.added + done.replaced else ""
    lines = f"{counts}; {done.seconds:.1f} s{rate}", f"{done.items} items in {address}"
    shared.show({"store": address.text, **asdict(done)}, as_json, *lines)


def _folder(store: str) -> Path:
    """Return the folder of a store; for a plain folder of images, that of its store."""
    path = ch.search.Address.parse(store).store.path
    if path is None:
        raise InputError(
            f"{store}: only a store in a folder is checked, repaired and backed up here; ask its "
            "server"
        )
    if not path.is_dir():
        raise InputError(
            f"{store}: not the folder of a store; a file of codes is checked whenever it is read"
        )
    return path
