"""``channelhash encode``"""

from pathlib import Path
from typing import Any

import typer

from channelhash.cli.options import AsJson, EngineName, SavedModel, SkipBad, TrustCode, Workers
from channelhash.cli.output import progress_bars, say_left_out, show, working
from channelhash.errors import InputError
from channelhash.utils.addresses import Place, place


def encode(
    run: SavedModel,
    data: str = typer.Option(..., help="A table, a file of features or a folder of pictures; for shards any address."),
    out: str = typer.Option(..., help="Parquet file to write, or a folder of shards (a name without ending)."),
    root: str | None = typer.Option(None, help="Folder that the table's picture paths are relative to."),
    skip_bad: SkipBad = False,
    engine: EngineName = None,
    workers: Workers = None,
    shard_items: int | None = typer.Option(None, min=1, help="For shards: items per shard, 16384 by default."),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Write the hash codes of a table, of features, or of pictures, as one file or as shards.

    Shards are for collections of any size: memory stays small, bad items are listed in a file, and the same command
    continues an interrupted job.

    Example: channelhash encode runs/table --data items.csv --root images --out codes.parquet

    Example: channelhash encode runs/table --data s3://bucket/shards --out codes --engine ray
    """
    target = place(out)
    if target.suffix == ".parquet":
        for option, value in {"--engine": engine, "--workers": workers, "--shard-items": shard_items}.items():
            if value:
                raise InputError(f"{option}: is for shards; name a folder instead of the file {out}, or leave it out")
        result = _encode_one(run, Path(data), target, Path(root) if root else None, skip_bad)
    else:
        from channelhash.scale import job as engines
        from channelhash.scale.encode import SHARD_ITEMS, encode_bulk

        if skip_bad:
            raise InputError("--skip-bad: bad items never stop the encoding of shards; leave it out")
        on = engines.Workers(engine or "local", workers)
        with working(f"finished shards are kept in {out}") as progress:
            result = encode_bulk(run, data, target, on, root, shard_items or SHARD_ITEMS, progress("encode"))
    codes = " and ".join(result["modalities"])
    where = f"{result['shards']} shards in {out}" if "shards" in result else out
    lines = [f"{result['items']} items, {result['n_bits']} bits, {codes} codes in {where}"]
    if result.get("bad"):
        lines.append(f"{result['bad']} items could not be encoded: {target / 'bad.jsonl'}")
    show(result, as_json, *lines)


def _encode_one(run: Path, data: Path, out: Place, root: Path | None, skip_bad: bool) -> dict[str, Any]:
    """Encode all items at once, into one file."""
    from channelhash.data.collection import readable
    from channelhash.data.folder import load_any
    from channelhash.models import load_model
    from channelhash.models.hash_model import encode_records

    model = load_model(run)
    records = load_any(data, root, skip_bad)
    if skip_bad and not data.is_dir():  # those of a folder are decoded as they are found
        records = readable(records)
    with progress_bars() as progress:
        codes = encode_records(model, records, progress("encode"))
    codes.save(out)
    say_left_out(records.problems)
    return {
        "out": str(out),
        "items": len(codes),
        "n_bits": codes.n_bits,
        "modalities": list(codes.codes),
        "removed": records.removed,
        "problems": list(records.problems),
    }
