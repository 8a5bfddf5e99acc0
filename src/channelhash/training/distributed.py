"""Several processes, one a device: started by ``torchrun`` or Ray Train, absent otherwise.

The loss is over pairs of the *global* batch, and the sum of what each rank computes of it: outputs are gathered from
all ranks, and their gradients are summed over them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from channelhash.errors import InputError


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Work together with the other processes that ``torchrun`` (or Ray Train) started; alone in any other process."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_initialized():  # Ray Train joins its processes itself, and parts them
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield
    dist.destroy_process_group()  # after an error torchrun ends all processes; waiting for them here would hang


def launched_rank() -> int:
    """This process's number among those that were started together, 0 in a process by itself."""
    return int(os.environ.get("RANK", "0"))


def local_device(device: torch.device) -> torch.device:
    """The GPU of this process where ``device`` names no certain one."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


def world_size() -> int:
    """Number of processes that train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """This process's number, 0 … `world_size` − 1."""
    return dist.get_rank() if dist.is_initialized() else 0


def wait_for_all() -> None:
    """Return when every process has come here."""
    if world_size() > 1:
        dist.barrier()


def from_first(value: Any) -> Any:
    """Rank 0's ``value``, in every process."""
    if world_size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def own_rows(rows: Tensor) -> Tensor:
    """This rank's consecutive share of a global batch."""
    size = world_size()
    if len(rows) % size:
        raise InputError(f"train.batch_size is {len(rows)}: {size} processes cannot share it evenly")
    share = len(rows) // size
    return rows[rank() * share : (rank() + 1) * share]


def gather_outputs(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of all ranks, ``(n / world, k)`` each, as one ``(n, k)`` with gradients, in the order of ranks.

    What is computed of them is this rank's part of a sum over ranks; the gradient is that of the whole sum.
    """
    if world_size() == 1:
        return outputs
    together = _Gather.apply(torch.stack(list(outputs.values())))  # type: ignore[no-untyped-call]
    return dict(zip(outputs, together.unbind(), strict=True))


def sum_over_ranks(values: Tensor) -> Tensor:
    """The sum of all ranks' ``values``, without a gradient."""
    if world_size() == 1:
        return values
    total = values.clone()
    dist.all_reduce(total)
    return total


def sum_gradients(module: nn.Module) -> None:
    """Make the gradients of a module outside DDP, of which each rank has its part, the whole sum."""
    if world_size() > 1:
        for parameter in module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)


class _Gather(torch.autograd.Function):
    """``(m, n / world, k)`` of each rank -> ``(m, n, k)``, all modalities in one exchange.

    DDP averages the parameters' gradients over ranks, but the loss is a sum over them, hence the factor.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        whole = gradients[0].contiguous()
        dist.all_reduce(whole)
        return whole.chunk(dist.get_world_size(), dim=1)[dist.get_rank()] * dist.get_world_size()
