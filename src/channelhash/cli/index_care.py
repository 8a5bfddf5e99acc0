"""``channelhash index check``, ``repair``, ``backup`` and ``refit``: whether a store is whole and fits its items."""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson, CodesMethod, TrustCode
from channelhash.cli.output import print_json, progress_bars
from channelhash.cli.stopping import when_stopped
from channelhash.errors import InputError

_STORE = typer.Argument(..., help="A store's folder.")


def check(store: str = _STORE, as_json: AsJson = False) -> None:
    """Read all of a store and list what is damaged; exit 1 if anything is. Others may use the store meanwhile.

    Example: channelhash index check photos.store
    """
    from channelhash.search.local.check import check_store

    damaged = check_store(_folder(store))
    findings = [str(finding) for finding in damaged]
    if as_json:
        listed = [finding._asdict() for finding in damaged]
        print_json({"store": store, "ok": not damaged, "damaged": listed})
    elif findings:
        for line in dict.fromkeys(findings):
            typer.echo(line)
        typer.echo(f"put back a backup, or keep what is whole: channelhash index repair {store}", err=True)
    else:
        typer.echo(f"{store} is whole")
    if findings:
        raise typer.Exit(1)


def repair(store: str = _STORE, as_json: AsJson = False) -> None:
    """Keep all whole items of a damaged store, list the others, and make anew what can be made from them.

    A damaged database is kept beside the new one, as items.sqlite.damaged. Nobody else may have the store open.

    Example: channelhash index repair photos.store
    """
    from channelhash.search.local.check import repair_store

    repaired = repair_store(_folder(store))
    damaged, lost = ([str(finding) for finding in findings] for findings in (repaired.damaged, repaired.lost))
    if as_json:
        print_json({"store": store, "damaged": damaged, "lost": lost, "items": repaired.n_items})
        return
    for line in dict.fromkeys(damaged):
        typer.echo(f"was damaged: {line}")
    for line in lost:
        typer.echo(f"lost: {line}")
    done = f"is whole again, {len(lost)} items or codes are lost" if damaged else "was whole"
    typer.echo(f"{store} {done}; it holds {repaired.n_items} items")


def backup(
    store: str = _STORE,
    to: Path = typer.Argument(..., help="New folder to write; it is a store, which can be searched."),
    as_json: AsJson = False,
) -> None:
    """Copy a store with its model as it is now, while others may go on writing to it, and check the copy.

    Example: channelhash index backup photos.store backups/photos.store
    """
    from channelhash.search.local.check import backup_store

    done = backup_store(_folder(store), to)
    if as_json:
        print_json({"store": store, "to": str(to), "items": done.n_items, "bytes": done.n_bytes})
        return
    typer.echo(f"{done.n_items} items of {store} are in {to}, checked")


def refit(
    store: str = _STORE,
    codes: CodesMethod = typer.Option(CodesMethod.auto, help="How codes are fitted, as in index create."),
    bits: int | None = typer.Option(None, min=1, help="Code length; unchanged by default."),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Fit the codes of a store anew to what it holds now, and encode all its items again.

    Do this when a store has grown much or has got captions. If killed, the store is unchanged; run the command again.

    Example: channelhash index refit photos.store
    """
    from channelhash.indexing.refit import refit_store

    when_stopped(f"{store} is unchanged; the part of the new one that is done is kept beside it")
    with progress_bars() as progress:
        done = refit_store(store, codes.value, bits, progress)
    if as_json:
        print_json({"store": store, "items": done.items, "seconds": done.seconds})
        return
    typer.echo(f"{done.items} items of {store} have new codes; {done.seconds:.1f} s")


def _folder(store: str) -> Path:
    if "://" in store:
        raise InputError(f"{store}: only a store in a folder is checked, repaired and backed up here; ask its server")
    from channelhash.search.photo_folders import find_or_keep

    path = find_or_keep(Path(store))
    if not path.is_dir():
        raise InputError(f"{store}: not the folder of a store; a file of codes is checked whenever it is read")
    return path
