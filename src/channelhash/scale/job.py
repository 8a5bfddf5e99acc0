"""Jobs of bulk encoding: which input, which model, which item in which shard. Written once, before any code."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from channelhash.data.bulk import KINDS, input_files
from channelhash.data.bulk.batches import Shard
from channelhash.errors import InputError
from channelhash.utils.addresses import File, folder_of
from channelhash.utils.reading import reading
from channelhash.utils.remote_paths import Place, RemotePath, write_whole_text
from channelhash.utils.typed_settings import read_settings, settings_of

if TYPE_CHECKING:
    from channelhash.models import HashModel

PlaceT = TypeVar("PlaceT", Path, RemotePath, Place)

_FORMAT = "channelhash bulk codes 1"

#: What must be the same when a job goes on: key of the manifest -> its name in messages.
_SAME = {
    "model": "model",
    "n_bits": "code length",
    "n_files": "number of input files",
    "input_hash": "names, sizes and dates of the input files",
    "root": "folder of the pictures",
    "shard_items": "--shard-items",
}


@dataclass(frozen=True)
class BulkJob:
    """The content of ``job/manifest.json`` in a folder of codes.

    Attributes:
        data: address of the input, as first given.
        kind: key of `data.bulk.KINDS`.
        root: folder that ids of images, or image paths in a Parquet file, are relative to.
        n_files: number of input files.
        input_hash: hash of their addresses, sizes and dates.
        modalities: modalities to encode.
        label_names: label names of the whole input, sorted, the same for every shard.
        model: the model's fingerprint.
        n_bits: code length k.
        shard_items: see `open_job`.
        shards: the n-th becomes the file `shard_path` of n.
    """

    data: str
    kind: str
    root: str
    n_files: int
    input_hash: str
    modalities: tuple[str, ...]
    label_names: tuple[str, ...]
    model: str
    n_bits: int
    shard_items: int
    shards: tuple[Shard, ...]


def open_job(model: "HashModel", data: str, out: Place, root: str | None, shard_items: int) -> BulkJob:
    """Return the job that encodes ``data`` into the folder ``out``: the one begun there, or a new one.

    Args:
        model: the model that encodes.
        data: address of the input, see `data.bulk.input_files`.
        out: folder of codes.
        root: folder that image paths in a Parquet file are relative to; None is the input's own.
        shard_items: items of a shard: exactly so many images (the last shard may have fewer), or at least so many rows
            in whole row groups of a Parquet file. A tar file is one shard.

    Raises:
        InputError: the input cannot be read, or has nothing that the model encodes; ``out`` holds other files, or a job
            of another model or input.
    """
    manifest = out / "job" / "manifest.json"
    kind, first = next(input_files(data))
    files = _Files(data)
    if root is not None and kind != "parquet":
        raise InputError(f"--root: belongs to Parquet files, {data} holds {kind}; leave it out")
    identity = {
        "model": model.fingerprint(),
        "n_bits": model.n_bits,
        "root": folder_of(data if root is None else f"{root}/*"),
        "shard_items": shard_items,
    }
    if manifest.exists():
        for _ in files:  # listed once more, for their hash
            pass
        current = identity | {"n_files": files.count, "input_hash": files.hash}
        return _check_same(out, read_job(out), current)
    if next(out.glob("*.parquet"), None):
        raise InputError(f"{out}: holds Parquet files, but no job/manifest.json; name an empty or a new folder")
    available = KINDS[kind].modalities(first.address)
    modalities = tuple(modality for modality in model.modalities if modality in available)
    if not modalities:
        raise InputError(
            f"{data}: holds {' and '.join(available)}, this model encodes {' and '.join(model.modalities)}"
        )
    planned = list(KINDS[kind].plan(files, modalities, shard_items, out / "job" / "listing.parquet"))
    if not planned:
        raise InputError(f"{data}: its {files.count} files hold no items")
    labels: frozenset[str] = frozenset().union(*(part.labels for part in planned))
    job = BulkJob(
        data=data,
        kind=kind,
        n_files=files.count,
        input_hash=files.hash,
        modalities=modalities,
        label_names=tuple(sorted(labels)),
        shards=tuple(part.shard for part in planned),
        **identity,  # type: ignore[arg-type]  # by key
    )
    _write_manifest(manifest, json.dumps({"format": _FORMAT, **asdict(job)}))
    return job


def _write_manifest(manifest: Place, text: str) -> None:
    """Write the manifest; in an object store, which has no locks, unless another process was faster."""
    if not isinstance(manifest, RemotePath):
        write_whole_text(manifest, text)
    elif not manifest.create(text.encode()):
        raise InputError(f"{manifest}: another process began a job there at the same time; name another --out")


def _check_same(out: Place, job: BulkJob, current: dict[str, Any]) -> BulkJob:
    for key, name in _SAME.items():
        if getattr(job, key) != current[key]:
            raise InputError(
                f"{out}: holds a job with another {name} ({getattr(job, key)}, now {current[key]}); name another "
                "--out, or remove this one"
            )
    return job


def read_job(out: Place) -> BulkJob:
    """Return the job that was begun in a folder of codes.

    Raises:
        InputError: the manifest is damaged or of another version.
    """
    manifest = out / "job" / "manifest.json"
    with reading(manifest, "not a readable manifest", "encode anew into another folder"):
        content: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
        if content.pop("format") != _FORMAT:
            raise ValueError("written by another version")
        try:
            return BulkJob(**vars(read_settings(settings_of(BulkJob), content, "job")))
        except InputError as error:
            raise ValueError(str(error)) from error


def shard_path(out: PlaceT, number: int) -> PlaceT:
    """Return the file of codes of a shard; only a finished shard has it.

    >>> shard_path(Path("codes"), 7).name
    'codes-000007.parquet'
    """
    return out / f"codes-{number:06d}.parquet"


def bad_path(out: PlaceT, number: int) -> PlaceT:
    """Return the file of the items of a shard that could not be encoded, a JSON object a line.

    >>> bad_path(Path("codes"), 7).as_posix()
    'codes/job/bad/000007.jsonl'
    """
    return out / "job" / "bad" / f"{number:06d}.jsonl"


def finished_shards(out: Place, n_shards: int) -> set[int]:
    """Return the numbers of the shards that have their files; list the folder once, which is one request of many files.

    >>> finished_shards(RemotePath("memory://codes of nobody"), 3)
    set()
    """
    names = {file.name for file in out.glob("codes-*.parquet")}
    return {number for number in range(n_shards) if shard_path(out, number).name in names}


def shard_files(folder: PlaceT) -> list[PlaceT]:
    """Return the files of codes in a folder, in order.

    Raises:
        InputError: there are none, or the job that writes them has not finished.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     shard_path(Path(folder), 0).touch()
    ...     [path.name for path in shard_files(Path(folder))]
    ['codes-000000.parquet']
    """
    if (folder / "job" / "manifest.json").exists():
        files = [shard_path(folder, number) for number in range(len(read_job(folder).shards))]
        missing = len(files) - len(finished_shards(folder, len(files)))
        if missing:
            raise InputError(f"{folder}: {missing} of {len(files)} shards are missing; run `channelhash encode` again")
        return files
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise InputError(f"{folder}: no .parquet files of codes in this folder")
    return files


class _Files:
    """Files of an input; their number and hash are known after one pass."""

    def __init__(self, data: str) -> None:
        self._data, self._digest, self.count = data, hashlib.sha256(), 0

    def __iter__(self) -> Iterator[File]:
        for _, file in input_files(self._data):
            self._digest.update(repr(file).encode())
            self.count += 1
            yield file

    @property
    def hash(self) -> str:
        return self._digest.hexdigest()[:16]
