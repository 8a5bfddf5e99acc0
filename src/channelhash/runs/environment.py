"""The record of where a run was trained: versions, device and commit; it names no machine, person or folder."""

import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from channelhash._version import __version__
from channelhash.errors import InputError
from channelhash.utils.files import reading, write_text

#: Packages whose versions can change codes or scores.
_PACKAGES = (
    "torch", "torchvision", "numpy", "numba", "scipy", "pillow", "open_clip_torch", "timm", "symspellpy", "h5py",
    "pyarrow", "onnxruntime", "sentence-transformers",
)  # fmt: skip


def _environment(device: torch.device, processes: int) -> dict[str, Any]:
    """Describe the environment of this process."""
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


def _git_commit(file: Path) -> str | None:
    """Return the commit of the checkout in which ``file`` is tracked; None without one, or without git.

    An installed package may lie in a folder of a checkout (its ``.venv``), where the file is not tracked.

    >>> _git_commit(Path("nowhere", "file.py")) is None
    True
    """
    if _git(file.parent, "ls-files", "--error-unmatch", file.name) is None:
        return None
    return _git(file.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def record_environment(path: Path, device: torch.device, processes: int) -> None:
    """Append the environment of this process to the JSON list in ``path`` if it differs from the last one.

    An interrupted run may continue on another machine.
    """
    entries, entry = read_environments(path), _environment(device, processes)
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
