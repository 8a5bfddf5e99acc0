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
from torch import Tensor, nn

from channelhash.errors import InputError, JobError, argument
from channelhash.utils.decode import one_line
from channelhash.utils.machine import pick_device

#: How long a process waits for the others in one exchange: the first one may validate meanwhile.
_LONGEST_WAIT = timedelta(hours=2)


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Join the processes that ``torchrun`` or Ray Train started together; a single process joins
    none.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_initialized():  # Ray Train joins and separates its processes itself
        yield
        return
    _join("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise JobError(
            f"rank {dist.get_rank()} lost another process ({one_line(error)}), whose own messages "
            "say why; the run keeps all up to its last checkpoint: start every process again "
            f"with {argument('resume')}"
        ) from error
    dist.destroy_process_group()  # after an error it would wait for processes that may be gone


def _join(backend: str) -> None:
    """Join the processes by a back end of PyTorch; raise `InputError` if one does not come."""
    try:
        dist.init_process_group(backend, timeout=_LONGEST_WAIT)
    except RuntimeError as error:
        raise InputError(
            f"{backend} cannot join the processes: {one_line(error)}; start all of them within "
            f"{_LONGEST_WAIT}, and let {backend.upper()}_SOCKET_IFNAME name the network device "
            "that reaches the others"
        ) from error


def launched_rank() -> int:
    """Return this process's number among those that were started together; 0 for a single process.

    >>> launched_rank()
    0
    """
    return int(os.environ.get("RANK", "0"))


def local_device(name: str) -> torch.device:
    """Return the device that a name stands for; ``cuda`` without a number is the GPU of this
    process.

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
    """Wait until every process has called this.

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


def rows_of_rank(rows: Tensor) -> Tensor:
    """Return this rank's consecutive rows of a global batch.

    >>> rows_of_rank(torch.arange(4)).tolist()
    [0, 1, 2, 3]
    """
    size = world_size()
    if len(rows) % size:
        raise InputError(
            f"train.batch_size is {len(rows)}: {size} processes cannot share it evenly"
        )
    return rows.chunk(size)[rank()]


def gather_outputs(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join the outputs of all ranks, ``(n / world, k)`` each, to one ``(n, k)`` with gradients,
    ordered by rank.

    Each rank computes its part of a sum from them; the gradient is that of the whole sum.

    >>> gather_outputs({"image": torch.zeros(2, 8)})["image"].shape
    torch.Size([2, 8])
    """
    if world_size() == 1:
        return outputs
    together = _Gather.apply(torch.stack(list(outputs.values())))  # type: ignore[no-untyped-call]
    return dict(zip(outputs, together.unbind(), strict=True))


def sum_gradients(module: nn.Module) -> None:
    """Sum over all ranks the gradients of a module outside DDP.

    >>> sum_gradients(nn.Linear(1, 1))
    """
    if world_size() > 1:
        for parameter in module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)


class _Gather(torch.autograd.Function):
    """``(m, n / world, k)`` of each rank -> ``(m, n, k)``, all modalities in one exchange.

    DDP averages the parameters' gradients over ranks, but the loss is a sum over ranks: hence the
    factor in `backward`.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        parts = [torch.empty_like(values) for _ in range(world_size())]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(world_size(), dim=1)[rank()] * world_size()
