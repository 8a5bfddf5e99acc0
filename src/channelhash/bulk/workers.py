"""Workers of a large job: this process, or actors on a Ray cluster. The same function does the
tasks in both.

Each actor of Ray Core does one task at a time. A task is a whole shard, so the shard's name says
what is finished. Ray Data would cut and join blocks by their sizes, and name files by task and
attempt.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from channelhash.errors import InputError, JobError, argument
from channelhash.utils.optional_imports import library
from channelhash.utils.typed_settings import naming_own_code, pick

_Task = TypeVar("_Task")
_TaskResult = TypeVar("_TaskResult")

#: Makes the function that does a task, once in every process; loading a model belongs there.
_Make = Callable[[], Callable[[_Task], _TaskResult]]

#: Returns the tasks for so many workers.
_TasksFor = Callable[[int], Iterable[_Task]]

#: How often a task is begun anew whose worker died; then the task itself is at fault.
_RETRIES = 3
#: Ray's store in memory on this machine: codes of queries and counts go through it, no items.
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
        self, make: _Make[_Task, _TaskResult], tasks: _TasksFor[_Task]
    ) -> Generator[_TaskResult, None, None]:
        """Yield the results of the tasks: in order from this process, in any order from Ray.

        Ray's object stores hold results of more than 100 KB, and free them up to a second late. So
        the number of large results must not grow with the size of the job.
        """
        if self.engine == "ray":
            yield from _run_on_ray(make, tasks, self.count)
        else:
            yield from map(make(), tasks(1))


def _run_on_ray(
    make: _Make[_Task, _TaskResult], tasks: _TasksFor[_Task], workers: int | None
) -> Generator[_TaskResult, None, None]:
    """Yield the results of the tasks as actors of Ray return them.

    Only as many tasks as there are workers are under way, so neither tasks nor results pile up.
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
        yield from _Attempts(ray, make, gpu_fraction).results(iter(tasks(count)), count)


class _Attempt(NamedTuple):
    """A task that an actor of Ray works at, and how many actors have died at it before."""

    actor: Any
    task: Any
    n_deaths: int


class _Attempts:
    """The tasks under way on a Ray cluster, one for each actor.

    If a worker or its node dies, another one begins its task anew, on a node that has a core free
    or joins later. That is not left to Ray, which tries again at once, and gives up before it knows
    that a node is gone.
    """

    def __init__(self, ray: Any, make: _Make[Any, Any], gpu_fraction: float) -> None:
        self._ray = ray
        self._actor_class = ray.remote(num_cpus=1, num_gpus=gpu_fraction)(_Worker)
        self._make_ref = ray.put(make)
        self._running: dict[Any, _Attempt] = {}  # by the reference to its result
        #: Raised when a worker died, its node, or the node that held its result.
        self._deaths = (
            ray.exceptions.RayActorError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.ObjectLostError,
        )

    def results(self, remaining: Iterator[Any], count: int) -> Iterator[Any]:
        """Yield results as they arrive; each of ``count`` actors goes on with the next task."""
        try:
            for task in islice(remaining, count):
                self._begin(task)
            while self._running:
                (result_ref,), _ = self._ray.wait(list(self._running))
                attempt = self._running.pop(result_ref)
                try:
                    result = self._result_of(result_ref)
                except self._deaths:
                    self._begin_again(attempt)
                    continue
                task = next(remaining, None)
                if task is None:
                    self._ray.kill(attempt.actor)
                else:
                    self._begin(task, attempt.actor)
                yield result
        finally:
            for attempt in self._running.values():
                self._ray.kill(attempt.actor)

    def _begin(self, task: Any, actor: Any = None, n_deaths: int = 0) -> None:
        """Give a task to an actor, a new one if None."""
        if actor is None:
            actor = self._actor_class.remote()
        result_ref = actor.work.remote([self._make_ref], task)
        self._running[result_ref] = _Attempt(actor, task, n_deaths)

    def _result_of(self, result_ref: Any) -> Any:
        """Return a result, or raise what a task raised, as it would be raised in this process."""
        try:
            return self._ray.get(result_ref)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InputError | JobError | OSError):
                raise error.cause from None
            raise

    def _begin_again(self, attempt: _Attempt) -> None:
        """Begin a task anew whose actor died, unless the task itself must be at fault."""
        self._ray.kill(attempt.actor)
        if attempt.n_deaths == _RETRIES:
            raise JobError(
                f"{_RETRIES + 1} workers died one after another at the same task "
                f"({attempt.task}); is there too little memory, or does an item of it crash a "
                "library?"
            ) from None
        self._begin(attempt.task, n_deaths=attempt.n_deaths + 1)


class _Worker:
    """An actor that keeps the function that ``make`` returns from task to task."""

    def __init__(self) -> None:
        self._work: Callable[[Any], Any] | None = None

    def work(self, make_refs: list[Any], task: Any) -> Any:
        """Do a task.

        The reference to ``make`` is in a list, or Ray would fetch it for each task.
        """
        with naming_own_code():
            # not in __init__: what fails there arrives as an actor's death, without the error
            if self._work is None:
                import ray

                from channelhash.utils.compiled import limit_threads

                limit_threads(1)  # there are as many workers as cores
                self._work = ray.get(make_refs[0])()
            return self._work(task)


#: Ray waits 30 s for its own processes, which a busy machine of two cores exceeds.
_START_SECONDS = "120"


def _start_ray(ray: Any, address: str | None, starts: int = 3, **options: Any) -> Any:
    """Connect to a cluster or start one; try again if a part of it was not up in time."""
    for wait in ("RAY_gcs_server_port_wait_time_s", "RAY_raylet_start_wait_time_s"):
        os.environ.setdefault(wait, _START_SECONDS)
    try:
        return ray.init(
            address=address or "local", log_to_driver=False, logging_level="ERROR", **options
        )
    except Exception as error:  # Ray raises a plain one
        # "The current node timed out during startup", "Timed out waiting for file …_port_…"
        if starts == 1 or "timed out" not in str(error).casefold():
            raise
    ray.shutdown()  # what did start ends
    return _start_ray(ray, address, starts - 1, **options)


@contextmanager
def _cluster() -> Iterator[Any]:
    """Yield Ray, connected to the cluster that ``RAY_ADDRESS`` names, or to a new one on this
    machine.
    """
    # Ray reports its use over the network otherwise
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = library("ray", "ray")
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = (
        {} if address else {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
    )
    handler_of_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        _start_ray(ray, address, **options)
    except Exception as error:  # Ray's own errors have no common class
        raise InputError(f"Ray cannot be reached at {address or 'this machine'}: {error}") from None
    finally:  # Ray replaces the handler: this process would exit with a status of Ray's own
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler_of_sigterm)
    try:
        yield ray
    finally:
        ray.shutdown()
