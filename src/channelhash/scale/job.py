"""Jobs of bulk encoding: which input, which model, which item in which shard. Written once, before any code.

Its tasks run in this process, or on a Ray cluster; the same worker does them in both.

Tasks go to actors of Ray Core, one at a time each. Ray Data would cut and join blocks as their sizes fall out and name
its files by task and attempt; here a task is a whole shard, so that what is finished is known by the shard's name.
"""

import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from channelhash.data.bulk import KINDS, input_files
from channelhash.data.bulk.batches import Shard
from channelhash.errors import InputError, JobError
from channelhash.utils.addresses import Place, RemotePath, folder_of, write_whole_text
from channelhash.utils.files import reading
from channelhash.utils.optional_imports import library
from channelhash.utils.typed_settings import pick, read_settings, settings_of

if TYPE_CHECKING:
    from channelhash.models import HashModel


_PlaceT = TypeVar("_PlaceT", Path, RemotePath, Place)

_FORMAT = "channelhash bulk codes 2"

#: What must be the same when a job goes on: key of the manifest -> its name in messages.
_SAME = {
    "model": "model",
    "input_hash": "names, sizes and dates of the input files",
    "root": "folder of the pictures",
    "shard_items": "--shard-items",
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
    if root is not None and kind != "parquet":
        raise InputError(f"--root: belongs to Parquet files, {data} holds {kind}; leave it out")
    digest = hashlib.sha256()
    for _, file in input_files(data):
        digest.update(repr(file).encode())
    identity: dict[str, Any] = {
        "model": model.fingerprint(),
        "n_bits": model.n_bits,
        "input_hash": digest.hexdigest()[:16],
        "root": folder_of(data if root is None else f"{root}/*"),
        "shard_items": shard_items,
    }
    if manifest.exists():
        job = _read_job(out)
        for key, name in _SAME.items():
            if getattr(job, key) != identity[key]:
                raise InputError(f"{out}: holds a job with another {name} ({getattr(job, key)}, now {identity[key]})")
        return job
    if next(out.glob("*.parquet"), None):
        raise InputError(f"{out}: holds Parquet files, but no job/manifest.json; name an empty or a new folder")
    available = KINDS[kind].modalities(first.address)
    modalities = tuple(modality for modality in model.modalities if modality in available)
    if not modalities:
        raise InputError(f"{data}: holds {' and '.join(available)}, the model encodes {' and '.join(model.modalities)}")
    files = (file for _, file in input_files(data))
    planned = list(KINDS[kind].plan(files, modalities, shard_items, out / "job" / "listing.parquet"))
    if not planned:
        raise InputError(f"{data}: its files hold no items")
    labels = sorted(set[str]().union(*(part.labels for part in planned)))
    shards = tuple(part.shard for part in planned)
    job = BulkJob(kind=kind, modalities=modalities, label_names=tuple(labels), shards=shards, **identity)
    text = json.dumps({"format": _FORMAT, **asdict(job)})
    if not isinstance(manifest, RemotePath):
        write_whole_text(manifest, text)
    elif not manifest.create(text.encode()):  # an object store has no locks
        raise InputError(f"{manifest}: another process began a job there at the same time; name another --out")
    return job


def _read_job(out: Place) -> BulkJob:
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


def shard_path(out: _PlaceT, number: int) -> _PlaceT:
    """Return the file of codes of a shard; only a finished shard has it.

    >>> shard_path(Path("codes"), 7).name
    'codes-000007.parquet'
    """
    return out / f"codes-{number:06d}.parquet"


def bad_path(out: _PlaceT, number: int) -> _PlaceT:
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


def shard_files(folder: _PlaceT) -> list[_PlaceT]:
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
        files = [shard_path(folder, number) for number in range(len(_read_job(folder).shards))]
        missing = len(files) - len(finished_shards(folder, len(files)))
        if missing:
            raise InputError(f"{folder}: {missing} of {len(files)} shards are missing; run `channelhash encode` again")
        return files
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise InputError(f"{folder}: no .parquet files of codes in this folder")
    return files


_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

#: Makes the function that does a task, once in every process; loading a model belongs there.
_Make = Callable[[], Callable[[_Task], _Result]]

#: Returns the tasks for so many workers.
_Tasks = Callable[[int], Iterable[_Task]]

# A task that has killed so many workers is at fault itself.
_RETRIES = 3
# Ray's store in memory on this machine: codes of queries and counts go through it, no items.
_STORE_BYTES = 512 << 20


@dataclass(frozen=True)
class Workers:
    """The workers of a large job.

    Attributes:
        engine: ``"local"`` or ``"ray"``.
        count: number of workers on Ray; None is one for each GPU of the cluster, or else for each core. With GPUs,
            workers share them evenly.

    Raises:
        InputError: there is no such engine, or a number of workers is given for ``"local"``.

    >>> list(Workers().run(lambda: abs, lambda workers: [-1, 2]))
    [1, 2]
    """

    engine: Literal["local", "ray"] = "local"
    count: int | None = None

    def __post_init__(self) -> None:
        pick(dict.fromkeys(("local", "ray")), self.engine, "engine")
        if self.engine == "local" and self.count is not None:
            raise InputError("--workers: belongs to --engine ray; this process is the only worker of local")

    def run(self, make: _Make[_Task, _Result], tasks: _Tasks[_Task]) -> Generator[_Result, None, None]:
        """Yield the results of the tasks: in order from this process, in any order from Ray.

        On Ray, results of more than 100 KB go through object stores, which free them up to a second late. So where
        results are large, their number must depend on the number of workers and not on the size of the job.
        """
        if self.engine == "ray":
            yield from _run_on_ray(make, tasks, self.count)
        else:
            yield from map(make(), tasks(1))


#: This process.
LOCAL = Workers()


def _run_on_ray(
    make: _Make[_Task, _Result], tasks: _Tasks[_Task], workers: int | None = None
) -> Generator[_Result, None, None]:
    """Yield the results of the tasks as actors of Ray return them.

    Where a worker dies, or its node, another one begins its task anew, on a node that has a core free or joins later.
    Only as many tasks as there are workers are under way, so neither tasks nor results pile up.

    Args:
        make: see `_Make`; it and all tasks and results travel between machines.
        tasks: returns what is to be done, see `Workers.run`.
        workers: see `Workers`.

    Raises:
        InputError: Ray is not installed, the cluster cannot be reached, or has fewer cores than workers; or as the
            worker raises it.
        JobError: a task killed its worker again and again; or as the worker raises it.
    """
    # Ray reports dead workers on stdout, which is for results.
    with redirect_stdout(sys.stderr), _cluster() as ray:
        cores, gpus = (int(ray.cluster_resources().get(name, 0)) for name in ("CPU", "GPU"))
        count = workers or gpus or max(1, cores)
        if count > cores:
            raise InputError(f"--workers {count}: the Ray cluster has {cores} cores, and each worker takes one")
        # As many workers on each GPU as make room for all: 2/3 of one each would leave a third of every GPU unused.
        gpu_fraction = 1 / -(-count // gpus) if gpus else 0
        worker = ray.remote(num_cpus=1, num_gpus=gpu_fraction)(_Worker)
        make_ref, remaining = ray.put(make), iter(tasks(count))
        # What says that a worker died, its node, or the node that held its result.
        lost = ray.exceptions.RayActorError, ray.exceptions.NodeDiedError, ray.exceptions.ObjectLostError
        running: dict[Any, tuple[Any, _Task, int]] = {}  # what is under way -> its actor, the task, its former tries

        def begin(actor: Any, task: _Task, tries: int = 0) -> None:
            running[actor.work.remote([make_ref], task)] = actor, task, tries

        try:
            for _, task in zip(range(count), remaining, strict=False):
                begin(worker.remote(), task)
            while running:
                (done,), _ = ray.wait(list(running))
                actor, task, tries = running.pop(done)
                try:
                    result = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, InputError | JobError | OSError):
                        raise error.cause from None
                    raise
                except lost:
                    # Not left to Ray, which tries again at once, and gives up before it knows that a node is gone.
                    ray.kill(actor)
                    if tries == _RETRIES:
                        raise JobError(
                            f"{_RETRIES + 1} workers died one after another at the same task ({task}); is there too"
                            " little memory, or does an item of it crash a library?"
                        ) from None
                    begin(worker.remote(), task, tries + 1)
                    continue
                following = next(remaining, None)
                if following is None:
                    ray.kill(actor)
                else:
                    begin(actor, following)
                yield result
        finally:
            for actor, _, _ in running.values():
                ray.kill(actor)


class _Worker:
    """An actor that keeps the function that ``make`` returns from task to task."""

    def __init__(self) -> None:
        self._work: Callable[[Any], Any] | None = None

    def work(self, make_refs: list[Any], task: Any) -> Any:
        """Do a task; the reference to ``make`` is in a list because Ray would fetch it anew each time."""
        if self._work is None:  # not in __init__: what fails there arrives as the death of an actor, without the error
            import numba
            import ray

            numba.set_num_threads(1)  # there are as many workers as cores
            self._work = ray.get(make_refs[0])()
        return self._work(task)


@contextmanager
def _cluster() -> Iterator[Any]:
    """Yield Ray, connected to the cluster that ``RAY_ADDRESS`` names, or to a new one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports its use over the network otherwise
    ray = library("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    at_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"Ray cannot be reached at {address or 'this machine'}: {error}") from None
    finally:  # Ray replaces the handler: this process would exit with a status of Ray's own
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, at_sigterm)
    try:
        yield ray
    finally:
        ray.shutdown()
