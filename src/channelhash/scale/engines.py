"""Where the tasks of a large job run: in this process, or on a Ray cluster. The same worker does them in both.

Tasks go to actors of Ray Core, one at a time each. Ray Data would cut and join blocks as their sizes fall out and name
its files by task and attempt; here a task is a whole shard, so that what is finished is known by the shard's name.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TypeVar

from channelhash.errors import InputError, JobError
from channelhash.utils.optional_imports import library

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Makes the function that does a task, once in every process; loading a model belongs there.
Make = Callable[[], Callable[[Task], Result]]
#: (make, tasks, number of workers or None) -> results, in any order.
Engine = Callable[[Make[Task, Result], Iterable[Task], int | None], Iterator[Result]]

# A task that has killed so many workers is at fault itself.
_RETRIES = 3
# Ray's store in memory on this machine: codes of queries and counts go through it, no items.
_STORE_BYTES = 512 << 20


def run_here(make: Make[Task, Result], tasks: Iterable[Task], workers: int | None = None) -> Iterator[Result]:
    """The results of ``tasks`` in order, one after another in this process."""
    if workers is not None:
        raise InputError("--workers: belongs to --engine ray; this process is the only worker of local")
    work = make()
    for task in tasks:
        yield work(task)


def run_on_ray(make: Make[Task, Result], tasks: Iterable[Task], workers: int | None = None) -> Iterator[Result]:
    """The results of ``tasks`` as they are done by actors of Ray.

    A worker that dies is started again, and does the task that it was at from the beginning. Only as many tasks as
    there are workers are under way, so neither tasks nor results pile up.

    Args:
        make: see `Make`; it and all tasks and results travel between machines.
        tasks: what is to be done.
        workers: how many; None is one for each GPU of the cluster, or else for each core. With GPUs, workers share
            them evenly.

    Raises:
        InputError: Ray is not installed, the cluster cannot be reached, or has fewer cores than workers; or as the
            worker raises it.
        JobError: a task killed its worker again and again; or as the worker raises it.
    """
    # Ray writes what it has to say of dead workers to stdout, which is for results.
    with redirect_stdout(sys.stderr), _cluster() as ray:
        cores, gpus = (int(ray.cluster_resources().get(name, 0)) for name in ("CPU", "GPU"))
        count = workers or gpus or max(1, cores)
        if count > cores:
            raise InputError(f"--workers {count}: the Ray cluster has {cores} cores, and each worker takes one")
        # As many workers on each GPU as make room for all: shares of 2/3 would leave a third of every GPU to nobody.
        share = 1 / -(-count // gpus) if gpus else 0
        worker = ray.remote(max_restarts=-1, max_task_retries=_RETRIES, num_cpus=1, num_gpus=share)(_Worker)
        made, remaining = ray.put(make), iter(tasks)
        running: dict[Any, tuple[Any, Task]] = {}
        actors = []
        try:
            for _, task in zip(range(count), remaining, strict=False):
                actors.append(worker.remote())
                running[actors[-1].work.remote([made], task)] = actors[-1], task
            while running:
                (done,), _ = ray.wait(list(running))
                actor, task = running.pop(done)
                for following in remaining:
                    running[actor.work.remote([made], following)] = actor, following
                    break
                yield _result(ray, done, task)
        finally:
            for actor in actors:
                ray.kill(actor)


ENGINES: dict[str, Engine[Any, Any]] = {"local": run_here, "ray": run_on_ray}


class _Worker:
    """An actor: what ``make`` makes, kept from task to task."""

    def __init__(self) -> None:
        self._work: Callable[[Any], Any] | None = None

    def work(self, made: list[Any], task: Any) -> Any:
        """Do a task; ``made`` is a reference to ``make``, in a list because Ray would fetch it anew each time."""
        if self._work is None:  # not in __init__: what fails there arrives as the death of an actor, without the error
            import numba
            import ray

            numba.set_num_threads(1)  # there are as many workers as cores
            self._work = ray.get(made[0])()
        return self._work(task)


def _result(ray: Any, done: Any, task: Any) -> Any:
    try:
        return ray.get(done)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError | JobError | OSError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError:
        raise JobError(
            f"{_RETRIES + 1} workers died one after another at the same task ({task}); is there too little memory, or "
            "does an item of it crash a library?"
        ) from None


@contextmanager
def _cluster() -> Iterator[Any]:
    """Ray, connected to the cluster that ``RAY_ADDRESS`` names, or to one of its own on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports its use over the network otherwise
    ray = library("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    own: dict[str, Any] = {} if address else {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"Ray cannot be reached at {address or 'this machine'}: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()
