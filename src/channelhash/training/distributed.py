"""Several processes, one a device: started by ``torchrun``, absent otherwise.

The loss is over pairs, so every rank computes it over the *global* batch: outputs are gathered with their gradients.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from channelhash.errors import InputError


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Work together with the other processes that ``torchrun`` started; alone in a process that it did not start."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield
    dist.destroy_process_group()  # after an error torchrun ends all processes; waiting for them here would hang


def launched_rank() -> int:
    """This process's number among those of ``torchrun``, 0 in a process that it did not start."""
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
    """The outputs of all ranks, ``(n / world, k)`` each, as one ``(n, k)`` with gradients, in the order of ranks."""
    if world_size() == 1:
        return outputs
    return {modality: _Gather.apply(values) for modality, values in outputs.items()}  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """All ranks compute the same loss from the same gathered outputs, so each already has the gradient by all of them:
    no second exchange. DDP averages parameter gradients over ranks, but the loss is one, hence the factor."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        own = gradient.chunk(dist.get_world_size())[dist.get_rank()]
        return own * dist.get_world_size()
