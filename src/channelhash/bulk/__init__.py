"""Encode an input of any size into a folder of shards, each written exactly once, and evaluate over
such shards.

Counts of shards add up, and every score is computed from their sum.
"""

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from channelhash.bulk.workers import Workers
from channelhash.codes import CodeSet
from channelhash.data.bulk import KINDS, Reading, Shard, input_files
from channelhash.data.records import Records
from channelhash.errors import InputError, JobError, argument, hide_secrets, naming
from channelhash.metrics import HammingHistogram
from channelhash.metrics.report import count_tasks, report_tasks, save_scores
from channelhash.models import HashModel, load_hash_model
from channelhash.models.hash_model import encode_records
from channelhash.utils.addresses import (
    Place,
    RemotePath,
    folder_of,
    list_files,
    place,
    whole_file,
    without_signature,
)
from channelhash.utils.decode import reading
from channelhash.utils.files import sweep
from channelhash.utils.image_files import ImageError, open_image
from channelhash.utils.locks import locked_folder
from channelhash.utils.machine import pick_device
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.typed_settings import python_names, settings_of, trusting

#: This process.
_LOCAL = Workers()
_FORMAT = "channelhash bulk codes 2"

#: What must be the same when a job goes on: key of the manifest -> its name in messages.
_SAME = {
    "model": "model",
    "input_hash": "names, sizes and dates of the input files",
    "root": "folder of the pictures",
    "shard_items": argument("shard_items"),
}


@dataclass(frozen=True)
class _BulkJob:
    """The content of ``job/manifest.json`` in a folder of codes.

    Attributes:
        kind: key of `data.bulk.KINDS`.
        root: folder that ids of images, or image paths in a Parquet file, are relative to.
        input_hash: hash of the input files' addresses, sizes and dates.
        modalities: modalities to encode.
        label_names: label names of the whole input, sorted, the same for every shard.
        model: the model's fingerprint.
        n_bits: code length k.
        shard_items: see `_open_job`.
        shards: the n-th becomes the file `_shard_path` of n.
    """

    kind: str
    root: str
    input_hash: str
    modalities: tuple[str, ...]
    label_names: tuple[str, ...]
    model: str
    n_bits: int
    shard_items: int
    shards: tuple[Shard, ...]


def _open_job(
    model: HashModel, data: str, out: Place, root: str | None, shard_items: int
) -> tuple[_BulkJob, dict[str, str]]:
    """Return the job that encodes ``data`` into the folder ``out``: the one begun there, or a new
    one; and the signed address, which is not kept, of each file that has one.

    A shard has exactly ``shard_items`` images (the last may have fewer), or at least so many rows
    in whole row groups of a Parquet file. A tar file is one shard.
    """
    manifest = out / "job" / "manifest.json"
    kind, first = next(input_files(data))
    if root is not None and kind != "parquet":
        raise InputError(
            f"{argument('root')}: belongs to Parquet files, {data} holds {kind}; leave it out"
        )
    input_hash, signed = _identify(data)
    identity: dict[str, Any] = {
        "model": model.fingerprint(),
        "n_bits": model.n_bits,
        "input_hash": input_hash,
        "root": folder_of(data if root is None else f"{root}/*"),
        "shard_items": shard_items,
    }
    if manifest.is_file():
        job = _read_job(out)
        for key, name in _SAME.items():
            if getattr(job, key) != identity[key]:
                raise InputError(
                    f"{out}: holds a job with another {name} ({getattr(job, key)}, now "
                    f"{identity[key]})"
                )
        return job, signed
    if next(out.glob("*.parquet"), None):
        raise InputError(
            f"{out}: holds Parquet files, but no job/manifest.json; name an empty or a new folder"
        )
    available = KINDS[kind].modalities(first.address)
    modalities = tuple(modality for modality in model.modalities if modality in available)
    if not modalities:
        raise InputError(
            f"{data}: holds {' and '.join(available)}, the model encodes "
            f"{' and '.join(model.modalities)}"
        )
    files = (file for _, file in input_files(data))
    planned = list(
        KINDS[kind].plan(files, modalities, shard_items, out / "job" / "listing.parquet")
    )
    if not planned:
        raise InputError(f"{data}: its files hold no items")
    labels = sorted(set[str]().union(*(names for _, names in planned)))
    shards = tuple(shard for shard, _ in planned)
    job = _BulkJob(
        kind=kind, modalities=modalities, label_names=tuple(labels), shards=shards, **identity
    )
    text = json.dumps({"format": _FORMAT, **asdict(job)})
    if not isinstance(manifest, RemotePath):
        _write_text(manifest, text)
    elif not manifest.create(text.encode()):  # an object store has no locks
        raise InputError(
            f"{manifest}: another process began a job there at the same time; name another "
            f"{argument('out')}"
        )
    return job, signed


def _identify(data: str) -> tuple[str, dict[str, str]]:
    """Return a hash of the files of an input, which a renewed signature does not change, and the
    signed address of each file that has one, by the address without.
    """
    digest = hashlib.sha256()
    signed = {}
    for _, file in input_files(data):
        kept = without_signature(file.address)
        digest.update(repr(file._replace(address=kept)).encode())
        if kept != file.address:
            signed[kept] = file.address
    return digest.hexdigest()[:16], signed


def _read_job(out: Place) -> _BulkJob:
    """Return the job that was begun in a folder of codes."""
    manifest = out / "job" / "manifest.json"
    with reading(manifest, "not a readable manifest", "encode anew into another folder"):
        content: dict[str, Any] = json.loads(manifest.read_bytes())
        if content.pop("format") != _FORMAT:
            raise ValueError("written by another version")
        return _BulkJob(**vars(settings_of(_BulkJob).model_validate(content)))


def _write_text(target: Place, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target`` in one step."""
    with whole_file(target) as file:
        file.write_text(text, encoding="utf-8", newline="\n")  # the same bytes on every system


def _shard_path(out: Place, number: int) -> Place:
    """Return the file of codes of a shard; only a finished shard has it.

    >>> _shard_path(Path("codes"), 7).name
    'codes-000007.parquet'
    """
    return out / f"codes-{number:06d}.parquet"


def _bad_path(out: Place, number: int) -> Place:
    """Return the file of the items of a shard that could not be encoded, a JSON object a line.

    >>> _bad_path(Path("codes"), 7).as_posix()
    'codes/job/bad/000007.jsonl'
    """
    return out / "job" / "bad" / f"{number:06d}.jsonl"


def _finished_shards(out: Place, n_shards: int) -> set[int]:
    """Return the numbers of the shards that have their files; list the folder once, not for each of
    them.
    """
    names = {file.name for file in out.glob("codes-*.parquet")}
    return {number for number in range(n_shards) if _shard_path(out, number).name in names}


def _shard_files(folder: Place) -> list[Place]:
    """Return the files of codes in a folder, in order; refuse a folder whose job has not
    finished.
    """
    if (folder / "job" / "manifest.json").is_file():
        files = [_shard_path(folder, number) for number in range(len(_read_job(folder).shards))]
        if missing := len(files) - len(_finished_shards(folder, len(files))):
            raise InputError(
                f"{folder}: {missing} of {len(files)} shards are missing; run `channelhash encode` "
                "again"
            )
        return files
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise InputError(f"{folder}: no .parquet files of codes in this folder")
    return files


#: Default number of items of a shard: a killed worker loses minutes even of a large model's work.
SHARD_ITEMS = 16384
# Small files read at once: from an object store, most of that time is waiting.
_READS = 8


def encode_bulk(
    model: Path,
    data: str,
    out: Place,
    workers: Workers = _LOCAL,
    root: str | None = None,
    shard_items: int = SHARD_ITEMS,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Encode an input shard by shard into ``out/codes-000000.parquet`` and so on, files as
    `CodeSet.save` writes them.

    A shard has its name only when it is whole; what was finished before is not done again, so a job
    that was interrupted goes on with the same call. Items that cannot be encoded do not stop it:
    ``out/bad.jsonl`` says which and why. The codes are the same for all kinds and numbers of
    workers.
    """
    next(input_files(data))  # where there is nothing to encode, nothing is written
    # An object store has no locks.
    with (
        locked_folder(out, "encoding into this folder", "job/lock")
        if isinstance(out, Path)
        else nullcontext()
    ):
        encoder = load_hash_model(model)
        job, signed = _open_job(encoder, data, out.resolve(), root, shard_items)
        finished = _finished_shards(out, len(job.shards))
        todo = [number for number in range(len(job.shards)) if number not in finished]
        done = 0
        total = sum(job.shards[number].items for number in todo)
        # or it would not have been loaded here
        trusted = python_names([encoder.name, encoder.architecture])
        make = partial(_ShardEncoder, model.resolve(), out.resolve(), job, trusted, signed)
        with closing(workers.run(make, lambda _: todo)) as results:
            for items in results:
                done += items
                progress(done, total)
        n_bad = _gather_bad(out, len(job.shards))
    return {
        "out": str(out),
        "shards": len(job.shards),
        "items": sum(shard.items for shard in job.shards) - n_bad,
        "bad": n_bad,
        "n_bits": job.n_bits,
        "modalities": list(job.modalities),
        "done_before": len(job.shards) - len(todo),
    }


class _ShardEncoder:
    """Encoder of whole shards.

    ``trusted`` names code that the model's folder may hold, ``signed`` has the signed addresses of
    files.
    """

    def __init__(
        self,
        model: Path,
        out: Place,
        job: _BulkJob,
        trusted: Sequence[str] = (),
        signed: dict[str, str] | None = None,
    ) -> None:
        self._signed = signed or {}
        with trusting(trusted):
            self._model = load_hash_model(model)
            self._out = out
            self._job = job
        if self._model.fingerprint() != job.model:
            # Perhaps this machine sees another folder under that name.
            raise InputError(
                f"{model}: holds model {self._model.fingerprint()} for a worker, the job's is "
                f"{job.model}"
            )
        self._model.to(pick_device("auto"))

    def __call__(self, number: int) -> int:
        """Encode the shard of this number; its file of codes is written last. Return the number of
        its items.
        """
        job = self._job
        shard = self._job.shards[number]
        parts, bad = [], []
        threads = torch.get_num_threads()
        # they split sums, and an output close to 0 could change its sign with their number
        torch.set_num_threads(1)
        try:
            inputs = Reading(job.root, job.modalities, job.label_names, self._signed)
            for records, left_out in KINDS[job.kind].read(shard, inputs):
                codes, problems = _encode_batch(self._model, records, job.model)
                parts.append(codes)
                bad += left_out + problems
        finally:
            torch.set_num_threads(threads)
        if (count := sum(map(len, parts)) + len(bad)) != shard.items:
            raise JobError(
                f"{shard.file}: had {shard.items} items, now {count}; it changed meanwhile"
            )
        codes = CodeSet.join(parts)
        file = _shard_path(self._out, number)
        lines = [
            json.dumps({"item": name, "reason": reason, "shard": file.name}) for name, reason in bad
        ]
        _write_text(_bad_path(self._out, number), "".join(f"{line}\n" for line in lines))
        codes.save(file)
        return count


def _encode_batch(
    model: HashModel, records: Records, fingerprint: str
) -> tuple[CodeSet, list[tuple[str, str]]]:
    """Return codes of the items of a batch, and the names of those that could not be encoded, with
    the reasons.

    Pictures are decoded only once where all are good; where one is not, each is looked at by
    itself.
    """
    try:
        return _codes(model, records, fingerprint), []
    except ImageError:
        images = enumerate(records.items["image"])
        wrong = {
            row: problem for row, content in images if (problem := _image_problem(model, content))
        }
        if not wrong:
            raise
    good = records.take([row for row in range(len(records)) if row not in wrong])
    return _codes(model, good, fingerprint), [
        (records.ids[row], problem) for row, problem in wrong.items()
    ]


def _codes(model: HashModel, records: Records, fingerprint: str) -> CodeSet:
    images: Any = records.items.get("image")
    if isinstance(images, Sequence):  # contents of files, no features
        opened = tuple(open_image(BytesIO(content)) for content in images)
        records = replace(records, items={**records.items, "image": opened})  # type: ignore[dict-item]  # as below
    codes = encode_records(model, records, fingerprint=fingerprint)
    # the records hold pictures, which nobody can be shown
    return replace(codes, images=records.display.get("image"))


def _image_problem(model: HashModel, content: Any) -> str | None:
    try:
        model.prepare("image", (open_image(BytesIO(content)),))  # type: ignore[arg-type]  # opened images too
    except ImageError as error:
        return f"not a readable picture ({error})"
    return None


def _gather_bad(out: Place, n_shards: int) -> int:
    """Join the shards' files of bad items to ``bad.jsonl``, remove what killed workers left, and
    count the lines.
    """
    if isinstance(out, Path):
        sweep(out)
    lines = 0
    with ThreadPoolExecutor(_READS) as threads, whole_file(out / "bad.jsonl") as temporary:
        paths = [_bad_path(out, number) for number in range(n_shards)]
        with open(temporary, "wb") as gathered:
            for content in threads.map(lambda path: path.read_bytes(), paths):
                lines += content.count(b"\n")
                gathered.write(content)
    return lines


# Codes read at once.
_ROWS = 1 << 17
# Tasks of a worker at most, each of several files whose counts it adds up: what reaches the driver,
# and goes through Ray's object stores, does not grow with the number of files. In this process,
# where nothing moves, steps of progress.
_TASKS = 8
_STEPS = 1024


_Counts = dict[str, HammingHistogram]


def evaluate_shards(
    query: Place,
    database: Place,
    workers: Workers = _LOCAL,
    out: Path | None = None,
    progress: Progress = no_progress,
    conventions: Sequence[str] = (),
) -> dict[str, Any]:
    """Compute all scores of queries that search files of codes, read part by part.

    The scores equal those of `metrics.evaluate` over all items at once bit by bit, for any kind and
    number of workers, because counts are whole numbers. Counts do not know single items:
    ``map_in_order`` is None, ``codes_in_use`` is missing. The driver holds the counts of one task
    after another, whatever the size of the database.
    """
    queries = CodeSet.load(query)
    if not len(queries):
        raise InputError(f"{query}: is empty; evaluation takes at least one code")
    files = [file.resolve() for file in _files(database)]
    done = 0
    n_items = 0
    total = _Counts()
    tasks = partial(_parts, files, _STEPS if workers.engine == "local" else _TASKS)
    with closing(workers.run(partial(partial, _count_shards, queries), tasks)) as results:
        for counts, items, read in results:
            total = _sum(total, counts, database)
            n_items = n_items + items
            done = done + read
            progress(done, len(files))
    if not total:
        raise InputError(f"{database}: is empty; evaluation takes at least one code")
    _check_gains(total, database)
    with naming(f"{query} and {database}", ValueError):
        reports = report_tasks(total, n_items, conventions=conventions)
    result: dict[str, Any] = {
        "n_bits": queries.n_bits,
        "query": hide_secrets(str(query)),
        "database": hide_secrets(str(database)),
    }
    result |= {"items": n_items, "shards": len(files), "tasks": reports}
    save_scores(result, total, out, f"{query.name} → {database.name}")
    return result


def _count_shards(query: CodeSet, files: list[Place]) -> tuple[_Counts, int, int]:
    """Count the items of files of codes by their distance to each query; return also how many items
    and files.
    """
    total = _Counts()
    items = 0
    for file in files:
        for part in CodeSet.stream(file, _ROWS):
            with naming(file, ValueError):
                counts = count_tasks(query, part) if len(part) else {}
            total = _sum(total, counts, file)
            items = items + len(part)
    return total, items, len(files)


def _parts(files: Sequence[Place], parts_of_worker: int, workers: int) -> list[list[Place]]:
    """Cut a list into parts of neighbours, as equal as possible: so many for each worker, or one
    for each file.
    """
    n = min(len(files), parts_of_worker * workers)
    return [list(files[len(files) * part // n : len(files) * (part + 1) // n]) for part in range(n)]


def _files(database: Place) -> Sequence[Place]:
    if "*" not in database.name:
        return _shard_files(database) if database.is_dir() else [database]
    files = [place(file.address) for file in list_files(str(database))]
    if not files:
        raise InputError(f"{database}: no file has such a name")
    return files


def _sum(first: _Counts, second: _Counts, where: Place) -> _Counts:
    if not first or not second:
        return first or second
    if first.keys() != second.keys():
        raise InputError(
            f"{where}: its shards are of different modalities; evaluate them by themselves"
        )
    return {task: first[task] + second[task] for task in first}


def _check_gains(counts: _Counts, where: Place) -> None:
    """Raise `JobError` where a sum of gains, a 64-bit multiple of 2⁻³², may overflow: about 2³¹
    relevant items.
    """
    for histogram in counts.values():
        gains = histogram.gains
        if (
            gains is not None
            and int(histogram.relevant.max()) * int(gains.gain.max(initial=0)) >= 1 << 63
        ):
            raise JobError(
                f"{where}: over 2 billion relevant items at one distance; evaluate a part of the "
                "shards"
            )
