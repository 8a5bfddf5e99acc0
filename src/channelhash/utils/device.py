"""Choose the device that a job runs on."""

import torch

from channelhash.errors import InputError


def pick_device(name: str) -> torch.device:
    """Return the device that a name stands for: ``auto`` is the GPU if there is one, else the CPU.

    Args:
        name: ``auto``, or PyTorch's own name of a device.

    Raises:
        InputError: there is no such device here.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        first = str(error).strip().splitlines()[0]
        raise InputError(
            f"device {name!r} is not there ({first}); use auto, cpu, or cuda where there is a GPU"
        ) from None
    return device
