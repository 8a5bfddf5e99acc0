"""``channelhash index push``, ``export-faiss`` and ``import-faiss``: items from one store to another."""

from dataclasses import asdict
from pathlib import Path

import typer

from channelhash.cli.options import AsJson, SearchableStore
from channelhash.cli.output import print_json, progress_bars
from channelhash.cli.stopping import when_stopped


def push(
    store: Path = typer.Argument(..., help="A store's folder."),
    target: str = typer.Argument(..., help="Another store, such as postgresql://USER@HOST/DATABASE."),
    as_json: AsJson = False,
) -> None:
    """Write all items of a store into another store; the same command continues a killed push.

    A password of PostgreSQL is read from the environment variable PGPASSWORD, a token of Milvus from MILVUS_TOKEN.

    Example: channelhash index push photos.store postgresql://postgres@localhost/photos
    """
    from channelhash.search.transfer import push as move

    when_stopped(f"{target} keeps the items written so far")
    with progress_bars() as progress:
        done = move(store, target, progress("push"))
    if as_json:
        print_json({"target": target, **asdict(done)})
        return
    before = f", {done.resumed} of them by an earlier push" if done.resumed else ""
    typer.echo(f"{done.items} items of {store} are in {target}{before}; it holds {done.target_items}")
    if done.without_projections:
        typer.echo(f"{target} keeps no projections: it ranks by bits alone")


def export_faiss(
    store: SearchableStore,
    out: Path = typer.Argument(..., help="FAISS file to write; FILE.items.parquet beside it holds the items' ids."),
    modality: str | None = typer.Option(None, help="Modality to export; image if there are any."),
    as_json: AsJson = False,
) -> None:
    """Write a store's codes as a FAISS file (IndexBinaryIDMap2 over IndexBinaryFlat).

    Example: channelhash index export-faiss photos.store photos.faiss
    """
    from channelhash.search import open_store
    from channelhash.search.transfer import export_faiss as export
    from channelhash.search.transfer import items_file

    when_stopped(f"{out} is not half written")
    opened = open_store(store)
    try:
        with progress_bars() as progress:
            count = export(opened, out, modality, progress("export"))
    finally:
        opened.close()
    if as_json:
        print_json({"out": str(out), "items_file": str(items_file(out)), "items": count})
        return
    typer.echo(f"{count} codes in {out}, their ids in {items_file(out)}")


def import_faiss(
    store: str = typer.Argument(..., help="Store to write to; it is created if it does not exist."),
    file: Path = typer.Argument(..., help="FAISS file; without FILE.items.parquet beside it, the ids are its numbers."),
    modality: str | None = typer.Option(None, help="Modality of the codes; by default the file's own, or image."),
    as_json: AsJson = False,
) -> None:
    """Write the codes of a FAISS file into a store, replacing those with the same ids.

    Example: channelhash index import-faiss photos.store photos.faiss
    """
    from channelhash.search.transfer import import_faiss as read

    when_stopped(f"{store} keeps the items written so far")
    with progress_bars() as progress:
        count = read(file, store, modality, progress("import"))
    if as_json:
        print_json({"store": store, "items": count})
        return
    typer.echo(f"{count} codes of {file} are in {store}")
