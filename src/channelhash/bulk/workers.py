"""Workers of a large job: this process, or actors on a Ray cluster. The same function does the
tasks in both.

Tasks go to actors of Ray Core, one at a time each. Ray Data would cut and join blocks as their
sizes fall out and name its files by task and attempt; here a task is a whole shard, so that what is
finished is known by the shard's name.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from channelhash.errors import InputError, JobError, argument
from channelhash.utils.optional_imports import library
from channelhash.utils.typed_settings import naming_own_code, pick

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
        count: number of workers on Ray; None is one for each GPU of the cluster, or else for each
            core. With GPUs, workers share them evenly.

    >>> list(Workers().run(lambda: abs, lambda workers: [-1, 2]))
    [1, 2]
    """

    engine: Literal["local", "ray"] = "local"
    count: int | None = None

    def __post_init__(self) -> None:
        pick(dict.fromkeys(("local", "ray")), self.engine, "engine")
        if self.engine == "local" and self.count is not None:
            raise InputError(
                f"{argument('count')}: belongs to {argument('engine')} ray; this process is the "
                "only worker of local"
            )

    def run(
        self, make: _Make[_Task, _Result], tasks: _Tasks[_Task]
    ) -> Generator[_Result, None, None]:
        """Yield the results of the tasks: in order from this process, in any order from Ray.

        On Ray, results of more than 100 KB go through object stores, which free them up to a second
        late. So where results are large, their number must depend on the number of workers and not
        on the size of the job.
        """
        if self.engine == "ray":
            yield from _run_on_ray(make, tasks, self.count)
        else:
            yield from map(make(), tasks(1))


def _run_on_ray(
    make: _Make[_Task, _Result], tasks: _Tasks[_Task], workers: int | None = None
) -> Generator[_Result, None, None]:
    """Yield the results of the tasks as actors of Ray return them.

    Where a worker dies, or its node, another one begins its task anew, on a node that has a core
    free or joins later. Only as many tasks as there are workers are under way, so neither tasks nor
    results pile up.
    """
    # Ray reports dead workers on stdout, which is for results.
    with redirect_stdout(sys.stderr), _cluster() as ray:
        cores, gpus = (int(ray.cluster_resources().get(name, 0)) for name in ("CPU", "GPU"))
        count = workers or gpus or max(1, cores)
        if count > cores:
            raise InputError(
                f"{argument('count')} {count}: the Ray cluster has {cores} cores, and each worker "
                "takes one"
            )
        # As many workers on each GPU as make room for all: 2/3 of one each would leave a third of
        # every GPU unused.
        gpu_fraction = 1 / -(-count // gpus) if gpus else 0
        worker = ray.remote(num_cpus=1, num_gpus=gpu_fraction)(_Worker)
        make_ref = ray.put(make)
        remaining = iter(tasks(count))
        # What says that a worker died, its node, or the node that held its result.
        deaths = (
            ray.exceptions.RayActorError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.ObjectLostError,
        )
        # what is under way -> its actor, the task, its former tries
        running: dict[Any, tuple[Any, _Task, int]] = {}

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
                except deaths:
                    # Not left to Ray, which tries again at once, and gives up before it knows that
                    # a node is gone.
                    ray.kill(actor)
                    if tries == _RETRIES:
                        raise JobError(
                            f"{_RETRIES + 1} workers died one after another at the same task "
                            f"({task}); is there too"
                            " little memory, or does an item of it crash a library?"
                        ) from None
                    begin(worker.remote(), task, tries + 1)
                    continue
                if (following := next(remaining, None)) is None:
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
        """Do a task; the reference to ``make`` is in a list because Ray would fetch it anew each
        time.
        """
        with naming_own_code():
            # not in __init__: what fails there arrives as an actor's death, without the error
            if self._work is None:
                import ray

                from channelhash.utils.compiled import limit_threads

                limit_threads(1)  # there are as many workers as cores
                self._work = ray.get(make_refs[0])()
            return self._work(task)


def _start_ray(ray: Any, address: str | None, starts: int = 3, **options: Any) -> Any:
    """Connect to a cluster or start one; again where its node took more than the 30 s that Ray
    gives it.
    """
    try:
        return ray.init(
            address=address or "local", log_to_driver=False, logging_level="ERROR", **options
        )
    except Exception as error:  # Ray raises a plain one
        if starts == 1 or "timed out during startup" not in str(error):
            raise
    return _start_ray(ray, address, starts - 1, **options)


@contextmanager
def _cluster() -> Iterator[Any]:
    """Yield Ray, connected to the cluster that ``RAY_ADDRESS`` names, or to a new one on this
    machine.
    """
    # Ray reports its use over the network otherwise
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if (ray := library("ray", "ray")).is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = (
        {} if address else {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    )
    at_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        _start_ray(ray, address, **options)
    except Exception as error:  # Ray's own errors have no common class
        raise InputError(f"Ray cannot be reached at {address or 'this machine'}: {error}") from None
    finally:  # Ray replaces the handler: this process would exit with a status of Ray's own
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, at_sigterm)
    try:
        yield ray
    finally:
        ray.shutdown()
