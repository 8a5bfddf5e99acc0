"""Encode an input of any size into a folder of shards, each written exactly once, and evaluate over
such shards.

Counts of shards add up, and every score is computed from their sum.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from channelhash.bulk.jobs import (
    BulkJob,
    bad_path,
    missing_shards,
    open_job,
    shard_files,
    shard_path,
    write_text,
)
from channelhash.bulk.workers import Workers
from channelhash.codes import CodeSet
from channelhash.data.bulk import KINDS, ReadingOptions, input_files
from channelhash.data.records import Records
from channelhash.errors import InputError, JobError, argument as argument, hide_secrets, naming
from channelhash.metrics import HammingHistogram
from channelhash.metrics.report import count_tasks, report_tasks, save_scores
from channelhash.models import HashModel, load_hash_model
from channelhash.models.hash_model import encode_records
from channelhash.utils.addresses import (
    Place,
    RemotePath as RemotePath,
    folder_of as folder_of,
    list_files,
    place,
    whole_file,
    without_signature as without_signature,
)
from channelhash.utils.decode import reading as reading
from channelhash.utils.files import sweep
from channelhash.utils.image_files import ImageError, open_image
from channelhash.utils.locks import locked_folder
from channelhash.utils.machine import pick_device
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.typed_settings import python_names, settings_of as settings_of, trusting

#: This process.
_LOCAL = Workers()
#: Default number of items of a shard: a killed worker loses minutes even of a large model's work.
SHARD_ITEMS = 16384
#: Small files read at once: from an object store, most of that time is waiting.
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

    A shard gets its name only when it is complete. So the same call continues an interrupted job,
    and repeats no finished shard. Items that cannot be encoded do not stop it:
    ``out/bad.jsonl`` says which and why. The codes are the same for all kinds and numbers of
    workers.
    """
    next(input_files(data))  # refuses before anything is written
    with _locked(out):
        encoder = load_hash_model(model)
        job, signed = open_job(encoder, data, out.resolve(), root, shard_items)
        todo = missing_shards(out, len(job.shards))
        done = 0
        total = sum(job.shards[number].items for number in todo)
        # it was loaded here, so its code is trusted
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


def _locked(out: Place) -> AbstractContextManager[None]:
    """Keep other processes out of a folder of codes; an object store has no locks."""
    if isinstance(out, Path):
        return locked_folder(out, "encoding into this folder", "job/lock")
    return nullcontext()


class _ShardEncoder:
    """Encoder of whole shards.

    ``trusted`` names code that the model's folder may hold, ``signed`` has the signed addresses of
    files.
    """

    def __init__(
        self,
        model: Path,
        out: Place,
        job: BulkJob,
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
        shard = job.shards[number]
        parts = []
        bad = []
        threads = torch.get_num_threads()
        # With another number of threads, sums are split elsewhere, and an output near 0 could
        # change its sign.
        torch.set_num_threads(1)
        try:
            inputs = ReadingOptions(job.root, job.modalities, job.label_names, self._signed)
            for records, left_out in KINDS[job.kind].read(shard, inputs):
                codes, problems = _encode_batch(self._model, records, job.model)
                parts.append(codes)
                bad += left_out + problems
        finally:
            torch.set_num_threads(threads)
        count = sum(map(len, parts)) + len(bad)
        if count != shard.items:
            raise JobError(
                f"{shard.file}: had {shard.items} items, now {count}; it changed meanwhile"
            )
        codes = CodeSet.join(parts)
        file = shard_path(self._out, number)
        lines = [
            json.dumps({"item": name, "reason": reason, "shard": file.name}) for name, reason in bad
        ]
        write_text(bad_path(self._out, number), "".join(f"{line}\n" for line in lines))
        codes.save(file)
        return count


def _encode_batch(
    model: HashModel, records: Records, fingerprint: str
) -> tuple[CodeSet, list[tuple[str, str]]]:
    """Return the codes of a batch, and the ids of the items that could not be encoded, with the
    reasons.

    Each image is looked at by itself only if one of the batch cannot be decoded.
    """
    try:
        return _codes(model, records, fingerprint), []
    except ImageError:
        good = []
        bad = []
        for row, content in enumerate(records.items["image"]):
            problem = _image_problem(model, content)
            if problem is None:
                good.append(row)
            else:
                bad.append((records.ids[row], problem))
        if not bad:
            raise
    return _codes(model, records.take(good), fingerprint), bad


def _codes(model: HashModel, records: Records, fingerprint: str) -> CodeSet:
    images: Any = records.items.get("image")
    if isinstance(images, Sequence):  # contents of files, no features
        opened: Any = tuple(open_image(BytesIO(content)) for content in images)
        records = replace(records, items={**records.items, "image": opened})
    codes = encode_records(model, records, fingerprint=fingerprint)
    # the records hold contents of files, which nobody can be shown
    return replace(codes, images=records.display.get("image"))


def _image_problem(model: HashModel, content: Any) -> str | None:
    """Return why the content of an image file cannot be encoded, None if it can."""
    try:
        opened: Any = open_image(BytesIO(content))
        model.prepare("image", [opened])
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
        paths = [bad_path(out, number) for number in range(n_shards)]
        with open(temporary, "wb") as gathered:
            for content in threads.map(lambda path: path.read_bytes(), paths):
                lines += content.count(b"\n")
                gathered.write(content)
    return lines


#: Codes read at once.
_ROWS = 1 << 17
#: Tasks of a worker on Ray at most. Each adds up the counts of several files, so that what goes
#: through Ray's object stores does not grow with the number of files.
_RAY_TASKS = 8
#: Tasks in this process at most: steps of the progress bar.
_LOCAL_TASKS = 1024

_TaskHistograms = dict[str, HammingHistogram]


def evaluate_shards(
    query: Place,
    database: Place,
    workers: Workers = _LOCAL,
    out: Path | None = None,
    progress: Progress = no_progress,
    conventions: Sequence[str] = (),
) -> dict[str, Any]:
    """Compute all scores of queries against files of codes, which are read part by part.

    Counts are whole numbers, so the scores are bit-identical to those of `metrics.evaluate` over
    all items at once, for any kind and number of workers. Counts know no single items:
    ``map_in_order`` is None, and ``codes_in_use`` is missing. The driver holds the counts of one
    task at a time, whatever the size of the database.
    """
    queries = CodeSet.load(query)
    if not len(queries):
        raise InputError(f"{query}: is empty; evaluation takes at least one code")
    files = [file.resolve() for file in _files(database)]
    done = 0
    n_items = 0
    total = _TaskHistograms()
    tasks = partial(_parts, files, _LOCAL_TASKS if workers.engine == "local" else _RAY_TASKS)
    with closing(workers.run(partial(partial, _count_shards, queries), tasks)) as results:
        for counts, items, read in results:
            total = _sum(total, counts, database)
            n_items += items
            done += read
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


def _count_shards(query: CodeSet, files: list[Place]) -> tuple[_TaskHistograms, int, int]:
    """Count the items of files of codes by their distance to each query; return also how many items
    and files.
    """
    total = _TaskHistograms()
    items = 0
    for file in files:
        for part in CodeSet.stream(file, _ROWS):
            with naming(file, ValueError):
                counts = count_tasks(query, part) if len(part) else {}
            total = _sum(total, counts, file)
            items += len(part)
    return total, items, len(files)


def _parts(files: Sequence[Place], parts_of_worker: int, workers: int) -> list[list[Place]]:
    """Cut a list into parts of neighbouring files, as equal as possible: ``parts_of_worker`` for
    each worker, or one for each file if there are fewer.
    """
    n = min(len(files), parts_of_worker * workers)
    return [list(files[len(files) * part // n : len(files) * (part + 1) // n]) for part in range(n)]


def _files(database: Place) -> Sequence[Place]:
    if "*" not in database.name:
        return shard_files(database) if database.is_dir() else [database]
    files = [place(file.address) for file in list_files(str(database))]
    if not files:
        raise InputError(f"{database}: no file has such a name")
    return files


def _sum(first: _TaskHistograms, second: _TaskHistograms, where: Place) -> _TaskHistograms:
    if not first or not second:
        return first or second
    if first.keys() != second.keys():
        raise InputError(
            f"{where}: its shards are of different modalities; evaluate them by themselves"
        )
    return {task: first[task] + second[task] for task in first}


def _check_gains(counts: _TaskHistograms, where: Place) -> None:
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
