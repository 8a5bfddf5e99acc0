"""The job of encoding an input into a folder of shards: ``job/manifest.json`` says what it is, and
files say what is finished.
"""

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

from channelhash.data.bulk import KINDS, InputShard, input_files
from channelhash.errors import InputError, argument
from channelhash.models import HashModel
from channelhash.utils.addresses import Place, RemotePath, folder_of, whole_file, without_signature
from channelhash.utils.decode import reading
from channelhash.utils.typed_settings import settings_of

_FORMAT = "channelhash bulk codes 2"
#: What must be the same when a job goes on: key of the manifest -> its name in messages.
_SAME = {
    "model": "model",
    "input_hash": "names, sizes and dates of the input files",
    "root": "folder of the pictures",
    "shard_items": argument("shard_items"),
}


@dataclass(frozen=True)
class BulkJob:
    """The content of ``job/manifest.json`` in a folder of codes.

    Attributes:
        kind: key of `data.bulk.KINDS`.
        root: folder that ids of images, or image paths in a Parquet file, are relative to.
        input_hash: hash of the input files' addresses, sizes and dates.
        modalities: modalities to encode.
        label_names: label names of the whole input, sorted, the same for every shard.
        model: the model's fingerprint.
        n_bits: code length k.
        shard_items: see `open_job`.
        shards: the n-th becomes the file `shard_path` of n.
    """

    kind: str
    root: str
    input_hash: str
    modalities: tuple[str, ...]
    label_names: tuple[str, ...]
    model: str
    n_bits: int
    shard_items: int
    shards: tuple[InputShard, ...]


def open_job(
    model: HashModel, data: str, out: Place, root: str | None, shard_items: int
) -> tuple[BulkJob, dict[str, str]]:
    """Return the job that encodes ``data`` into the folder ``out``: the one begun there, or a new
    one; and the signed address, which is not kept, of each file that has one.

    A shard has exactly ``shard_items`` images (the last may have fewer); of a Parquet file, it
    has whole row groups with at least so many rows. A tar file is one shard.
    """
    kind, first = next(input_files(data))
    if root is not None and kind != "parquet":
        raise InputError(
            f"{argument('root')}: belongs to Parquet files, {data} holds {kind}; leave it out"
        )
    input_hash, signed = _identify(data)
    job = BulkJob(
        kind=kind,
        root=folder_of(data if root is None else f"{root}/*"),
        input_hash=input_hash,
        modalities=(),
        label_names=(),
        model=model.fingerprint(),
        n_bits=model.n_bits,
        shard_items=shard_items,
        shards=(),
    )
    if _manifest(out).is_file():
        begun = read_job(out)
        _check_same(begun, job, out)
        return begun, signed
    if next(out.glob("*.parquet"), None):
        raise InputError(
            f"{out}: holds Parquet files, but no job/manifest.json; name an empty or a new folder"
        )
    modalities = _common_modalities(model, data, KINDS[kind].modalities(first.address))
    job = _plan(replace(job, modalities=modalities), data, out)
    _begin(job, _manifest(out))
    return job, signed


def _manifest(out: Place) -> Place:
    return out / "job" / "manifest.json"


def _identify(data: str) -> tuple[str, dict[str, str]]:
    """Return a hash of the files of an input, and address -> signed address of those that have one.

    A renewed signature does not change the hash.
    """
    digest = hashlib.sha256()
    signed = {}
    for _, file in input_files(data):
        kept = without_signature(file.address)
        digest.update(repr(file._replace(address=kept)).encode())
        if kept != file.address:
            signed[kept] = file.address
    return digest.hexdigest()[:16], signed


def _check_same(begun: BulkJob, job: BulkJob, out: Place) -> None:
    """Raise `InputError` if the job that was begun in a folder is another one."""
    for key, name in _SAME.items():
        before = getattr(begun, key)
        now = getattr(job, key)
        if before != now:
            raise InputError(f"{out}: holds a job with another {name} ({before}, now {now})")


def _common_modalities(model: HashModel, data: str, available: Collection[str]) -> tuple[str, ...]:
    """Return what both the model encodes and the input holds."""
    modalities = tuple(modality for modality in model.modalities if modality in available)
    if not modalities:
        raise InputError(
            f"{data}: holds {' and '.join(available)}, the model encodes "
            f"{' and '.join(model.modalities)}"
        )
    return modalities


def _plan(job: BulkJob, data: str, out: Place) -> BulkJob:
    """Cut the input of a job into shards; return the job with them and the names of all labels."""
    files = (file for _, file in input_files(data))
    listing = out / "job" / "listing.parquet"
    shards = []
    labels = set[str]()
    for shard, names in KINDS[job.kind].plan(files, job.modalities, job.shard_items, listing):
        shards.append(shard)
        labels.update(names)
    if not shards:
        raise InputError(f"{data}: its files hold no items")
    return replace(job, shards=tuple(shards), label_names=tuple(sorted(labels)))


def _begin(job: BulkJob, manifest: Place) -> None:
    """Write the manifest of a new job."""
    text = json.dumps({"format": _FORMAT, **asdict(job)})
    if not isinstance(manifest, RemotePath):
        write_text(manifest, text)
    elif not manifest.create(text.encode()):  # an object store has no locks
        raise InputError(
            f"{manifest}: another process began a job there at the same time; name another "
            f"{argument('out')}"
        )


def read_job(out: Place) -> BulkJob:
    """Return the job that was begun in a folder of codes."""
    manifest = _manifest(out)
    with reading(manifest, "not a readable manifest", "encode anew into another folder"):
        content: dict[str, Any] = json.loads(manifest.read_bytes())
        if content.pop("format") != _FORMAT:
            raise ValueError("written by another version")
        return BulkJob(**vars(settings_of(BulkJob).model_validate(content)))


def write_text(target: Place, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target`` in one step."""
    with whole_file(target) as file:
        file.write_text(text, encoding="utf-8", newline="\n")  # the same bytes on every system


def shard_path(out: Place, number: int) -> Place:
    """Return the file of codes of a shard; only a finished shard has it.

    >>> shard_path(RemotePath("s3://bucket/codes"), 7).name
    'codes-000007.parquet'
    """
    return out / f"codes-{number:06d}.parquet"


def bad_path(out: Place, number: int) -> Place:
    """Return the file of the items of a shard that could not be encoded, a JSON object a line.

    >>> str(bad_path(RemotePath("s3://bucket/codes"), 7))
    's3://bucket/codes/job/bad/000007.jsonl'
    """
    return out / "job" / "bad" / f"{number:06d}.jsonl"


def missing_shards(out: Place, n_shards: int) -> list[int]:
    """Return the numbers of the shards that have no file yet, by one listing of the folder."""
    names = {file.name for file in out.glob("codes-*.parquet")}
    return [number for number in range(n_shards) if shard_path(out, number).name not in names]


def shard_files(folder: Place) -> list[Place]:
    """Return the files of codes in a folder, in order; refuse a folder whose job has not
    finished.
    """
    if _manifest(folder).is_file():
        files = [shard_path(folder, number) for number in range(len(read_job(folder).shards))]
        missing = len(missing_shards(folder, len(files)))
        if missing:
            raise InputError(
                f"{folder}: {missing} of {len(files)} shards are missing; run `channelhash encode` "
                "again"
            )
        return files
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise InputError(f"{folder}: no .parquet files of codes in this folder")
    return files
