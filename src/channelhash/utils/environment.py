"""Where a job runs: its device, and a record of versions, device and commit that names no machine, person or folder."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channelhash._version import __version__
from channelhash.errors import InputError
from channelhash.utils.files import reading, write_text

if TYPE_CHECKING:
    import torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: Packages whose versions can change codes or scores.
_PACKAGES = (
    "torch", "torchvision", "numpy", "numba", "scipy", "pillow", "open_clip_torch", "timm", "symspellpy", "h5py",
    "pyarrow", "onnxruntime", "sentence-transformers",
)  # fmt: skip


def environment(device: "torch.device", processes: int = 1) -> dict[str, Any]:
    """Describe the environment of this process.

    >>> import torch
    >>> environment(torch.device("cpu"), processes=2)["processes"]
    2
    """
    import torch  # what only reads records of environments does not need it

    return {
        "channelhash": __version__,
        "git_commit": _git_commit(Path(__file__)),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        "packages": {name: installed for name in _PACKAGES if (installed := _version(name))},
    }


def usable_cores() -> int:
    """Return the number of cores that this process may run on; a cluster's job often has few of the machine's.

    >>> usable_cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _git_commit(file: Path) -> str | None:
    """Return the commit of the checkout in which ``file`` is tracked; None without one, or without git.

    An installed package may lie in a folder of a checkout (its ``.venv``), where the file is not tracked.

    >>> _git_commit(Path("nowhere", "file.py")) is None
    True
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    return _git(file.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def record_environment(path: Path, entry: dict[str, Any]) -> None:
    """Append an environment to the JSON list in ``path`` if it differs from the last one.

    An interrupted run may continue on another machine.
    """
    entries = read_environments(path)
    if not entries or entries[-1] != entry:
        write_text(path, json.dumps([*entries, entry], indent=2) + "\n")


def read_environments(path: Path) -> list[dict[str, Any]]:
    """Read what `record_environment` wrote, oldest first; an empty list if there is no such file.

    >>> read_environments(Path("nowhere", "environment.json"))
    []
    """
    if not path.exists():
        return []
    with reading(path, "not readable", "remove it, it is only for reports"):
        entries = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(f"{path}: not a list of environments; remove it, it is only for reports")
    return entries


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints, stripped; None if git fails or is missing."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def pick_device(name: str) -> "torch.device":
    """Return the device that a name stands for: ``auto`` is the GPU if there is one, else the CPU.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    import torch

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


def peak_bytes() -> int | None:
    """Return the most resident memory that this process has had; None if unknown.

    >>> peak_bytes() is None or peak_bytes() > 1_000_000
    True
    """
    if resource is None:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF)
    # macOS counts bytes, all others 1024 of them.
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
