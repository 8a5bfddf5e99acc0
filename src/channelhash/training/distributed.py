"""Training in several processes, one for each device, that ``torchrun`` or Ray Train starts.

The loss is over pairs of the *global* batch. Each rank computes a shard of it, and the shards add
up: outputs are gathered from all ranks, and their gradients are summed over them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from channelhash.errors import InputError, JobError, argument
from channelhash.utils.decode import one_line
from channelhash.utils.machine import pick_device

#: How long a process waits for the others in one exchange, while the first one validates, say.
_LONGEST_WAIT = timedelta(hours=2)


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Join the processes that ``torchrun`` or Ray Train started together; do nothing in a process
    by itself.
    """
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    if device.type == "cuda" and not alone:
        torch.cuda.set_device(device)
    if alone or dist.is_initialized():  # Ray Train joins and separates its processes itself
        yield
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, timeout=_LONGEST_WAIT)
    except RuntimeError as error:
        raise InputError(
            f"{backend} cannot join the processes: {one_line(error)}; start all of them within "
            f"{_LONGEST_WAIT}, and let {backend.upper()}_SOCKET_IFNAME name the network device "
            "that reaches the others"
        ) from error
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise JobError(
            f"rank {dist.get_rank()} lost another process ({one_line(error)}), whose own messages "
            "say why; the run "
            "keeps all up to its last checkpoint: start every process again with "
            f"{argument('resume')}"
        ) from error
    dist.destroy_process_group()  # after an error it would wait for processes that may be gone


def launched_rank() -> int:
    """Return this process's number among those that were started together, 0 in a process by
    itself.

    >>> launched_rank()
    0
    """
    return int(os.environ.get("RANK", "0"))


def local_device(name: str) -> torch.device:
    """Return the device that a name stands for: where that is ``cuda`` without a number, the GPU of
    this process.

    >>> local_device("cpu")
    device(type='cpu')
    """
    device = pick_device(name)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


def world_size() -> int:
    """Return the number of processes that train together.

    >>> world_size()
    1
    """
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return this process's number, 0 … `world_size` − 1.

    >>> rank()
    0
    """
    return dist.get_rank() if dist.is_initialized() else 0


def wait_for_all() -> None:
    """Wait until every process has come here.

    >>> wait_for_all()
    """
    if world_size() > 1:
        dist.barrier()


def from_first(value: Any) -> Any:
    """Return rank 0's ``value`` in every process.

    >>> from_first("run-1")
    'run-1'
    """
    box = [value]
    if world_size() > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]
