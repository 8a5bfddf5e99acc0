"""Every random draw comes from a named seed."""

import hashlib

import numpy as np


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for one named purpose, e.g. ``derive_seed(0, "batches", epoch)``.

    The same names give the same seed on every machine and in every process; different names give independent streams.
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A NumPy generator seeded by `derive_seed`."""
    return np.random.default_rng(derive_seed(seed, *names))
