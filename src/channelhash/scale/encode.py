"""Bulk encoding: an input of any size to a folder of shards of codes, each of them written exactly once."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from channelhash.codes.code_set import CodeSet, joined
from channelhash.data.bulk import KINDS, input_files
from channelhash.data.bulk.batches import Bad, RawBatch
from channelhash.errors import InputError, JobError
from channelhash.models import HashModel, load_model
from channelhash.models.hash_model import encode_records
from channelhash.scale.job import LOCAL, BulkJob, Workers, bad_path, finished_shards, open_job, shard_path
from channelhash.utils.addresses import Place, whole_file, write_whole_text
from channelhash.utils.environment import pick_device
from channelhash.utils.files import locked, sweep
from channelhash.utils.image_files import ImageError
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.python_names import python_names, trusting

#: Default number of items of a shard: a killed worker loses minutes even of a large model's work.
SHARD_ITEMS = 16384
# Small files read at once: from an object store, most of that time is waiting.
_READS = 8


def encode_bulk(
    model: Path,
    data: str,
    out: Place,
    workers: Workers = LOCAL,
    root: str | None = None,
    shard_items: int = SHARD_ITEMS,
    progress: Progress = no_progress,
) -> dict[str, Any]:
    """Encode an input shard by shard into ``out/codes-000000.parquet`` and so on, files as `CodeSet.save` writes them.

    A shard has its name only when it is whole; what was finished before is not done again, so a job that was
    interrupted goes on with the same call. Items that cannot be encoded do not stop it: ``out/bad.jsonl`` says which
    and why. The codes are the same for all kinds and numbers of workers.

    Args:
        model: a run's folder or a saved model, which every worker must see, like ``data`` and ``out``.
        data: see `data.bulk.input_files`.
        out: folder of codes, here or in an object store. There, where no locks are, two processes at one job do all
            work twice and write the same bytes.
        workers: this process, or workers on Ray.
        root: see `open_job`, likewise ``shard_items``.
        progress: called with (done, total) items of the shards that were not there yet.

    Returns:
        ``{"out": …, "shards": n, "items": n, "bad": n, "n_bits": k, "modalities": […], "done_before": shards}``.

    Raises:
        InputError: see `open_job`; or another process is at this job.
        JobError: the input changed meanwhile, or as the workers raise it.
    """
    if shard_items < 1:
        raise InputError(f"--shard-items {shard_items}: a shard has at least 1 item")
    next(input_files(data))  # where there is nothing to encode, nothing is written
    with _held(out):
        encoder = load_model(model)
        job = open_job(encoder, data, out.resolve(), root, shard_items)
        finished = finished_shards(out, len(job.shards))
        todo = [number for number in range(len(job.shards)) if number not in finished]
        done, total = 0, sum(job.shards[number].items for number in todo)
        trusted = python_names([encoder.name, encoder.architecture])  # or it would not have been loaded here
        make = partial(_ShardEncoder, model.resolve(), out.resolve(), job, trusted)
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
    """Encoder of whole shards, whatever was left of an earlier attempt.

    Args:
        model: folder of the model.
        out: folder of codes.
        job: the job.
        trusted: names of code that the model's folder may hold.

    Raises:
        InputError: the model there is not the job's: perhaps this machine sees another folder under that name.
    """

    def __init__(self, model: Path, out: Place, job: BulkJob, trusted: Sequence[str] = ()) -> None:
        with trusting(trusted):
            self._model, self._out, self._job = load_model(model), out, job
        if self._model.fingerprint() != job.model:
            raise InputError(f"{model}: holds model {self._model.fingerprint()} for a worker, the job's is {job.model}")
        self._model.to(pick_device("auto"))

    def __call__(self, number: int) -> int:
        """Encode the shard of this number; its file of codes is written last. Return the number of its items."""
        job, shard = self._job, self._job.shards[number]
        parts, bad = [], []
        with _one_thread():
            for batch in KINDS[job.kind].read(shard, job.root, job.modalities):
                codes, problems = _encode_batch(self._model, batch, job)
                parts.append(codes)
                bad += problems
        count = sum(map(len, parts)) + len(bad)
        if count != shard.items:
            raise JobError(f"{shard.file}: had {shard.items} items, now {count}; it changed meanwhile")
        codes = joined(parts)
        lines = [json.dumps({**item._asdict(), "shard": shard_path(self._out, number).name}) for item in bad]
        write_whole_text(bad_path(self._out, number), "".join(f"{line}\n" for line in lines))
        codes.save(shard_path(self._out, number))
        return count


def _encode_batch(model: HashModel, batch: RawBatch, job: BulkJob) -> tuple[CodeSet, list[Bad]]:
    """Return codes of the items of a batch, and the items that could not be encoded.

    Pictures are decoded only once where all are good; where one is not, each is looked at by itself.
    """
    try:
        return _codes(model, batch, job), batch.bad
    except ImageError:
        wrong = {row: problem for row in range(len(batch.ids)) if (problem := _image_problem(model, batch, row))}
        if not wrong:
            raise
    good = batch.take([row for row in range(len(batch.ids)) if row not in wrong])
    return _codes(model, good, job), batch.bad + [Bad(batch.ids[row], problem) for row, problem in wrong.items()]


def _codes(model: HashModel, batch: RawBatch, job: BulkJob) -> CodeSet:
    codes = encode_records(model, batch.records(job.label_names), fingerprint=job.model)
    return replace(codes, images=batch.image_addresses)  # the records hold opened pictures, which nobody can be shown


def _image_problem(model: HashModel, batch: RawBatch, row: int) -> str | None:
    try:
        model.prepare("image", batch.take([row]).records(batch.labels[row]).items["image"])
    except ImageError as error:
        return f"not a readable picture ({error})"
    return None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with one thread: threads split sums, and an output close to 0 could change its sign with their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _held(out: Place) -> Iterator[None]:
    """Hold a folder alone, without what killed processes left; an object store has neither locks nor leftovers.

    Raises:
        InputError: another process holds it.
    """
    if not isinstance(out, Path):
        yield
        return
    try:
        with locked(out / "job" / "lock", wait=False):
            sweep(out)
            yield
    except BlockingIOError:
        raise InputError(f"{out}: another process is encoding into this folder; wait for it, or end it") from None


def _gather_bad(out: Place, n_shards: int) -> int:
    """Join the shards' files of bad items to ``bad.jsonl``, remove what killed workers left, and count the lines."""
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
