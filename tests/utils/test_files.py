"""Files in one step: what killed writers leave goes, what living ones write stays, a full disk is
named.
"""

import codecs
import errno
import os
import resource
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image
from safetensors.torch import save_file

from channelhash.errors import NoSpaceError
from channelhash.utils import files
from channelhash.utils.decode import decode_text, split_lines
from channelhash.utils.files import atomic_path, space_for, sweep
from small_runs import assert_refused, feature_config, run_command, write_features


# A carriage return is part of a line unless a line feed follows, which may be that of the test.
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff\r")))
def test_a_text_is_read_in_each_encoding_that_a_byte_order_mark_names(text):
    for content in (text.encode("utf-8-sig"), codecs.BOM_UTF8 + text.encode("utf-8-sig")):
        assert decode_text(content) == text
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        assert decode_text(mark + text.encode(encoding)) == text
    lines = text.split("\n")
    assert split_lines(text + "\n") == split_lines("\r\n".join([*lines, ""])) == lines
    assert split_lines(f"a\rb{text}\n") == [f"a\rb{lines[0]}", *lines[1:]]


#: Writes a half of a file and of a folder, says so, and waits.
HALF = """
import sys, time
from pathlib import Path
from channelhash.utils.files import atomic_path, temporary_folder
folder = Path(sys.argv[1])
with atomic_path(folder / "codes.parquet") as temporary, temporary_folder(folder / "words") as inner:
    temporary.write_bytes(b"half")
    (inner / "vectors.npy").write_bytes(b"half")
    print("half", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path):
    """A process in the middle of writing into ``tmp_path``."""
    process = subprocess.Popen([sys.executable, "-c", HALF, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"half\n"
    files._sweep_once.cache_clear()  # as in a new process
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("begin", [
    lambda folder: files.write_text(folder / "other.txt", "the next start"),
    lambda folder: sweep(folder.parent),
], ids=["write", "sweep"])  # fmt: skip
def test_the_files_of_a_killed_writer_go_and_those_of_a_living_one_stay(tmp_path, writer, begin):
    begin(tmp_path)
    assert sum(path.suffix == ".tmp" for path in tmp_path.iterdir()) == 2
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    files._sweep_once.cache_clear()
    begin(tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_a_sweep_leaves_files_that_only_look_like_leftovers(tmp_path):
    for name in (
        ".tmp",
        "a.tmp",
        f"codes.{uuid.uuid4().hex}.tmp",
        f".codes.{uuid.uuid4().hex}",
        ".codes.0123.tmp",
    ):
        (tmp_path / name).touch()
    before = set(tmp_path.iterdir())
    (tmp_path / f".a.{uuid.uuid4().hex}.tmp").symlink_to(tmp_path / "a.tmp")
    os.mkfifo(tmp_path / f".b.{uuid.uuid4().hex}.tmp")
    sweep(tmp_path)
    assert before <= set(tmp_path.iterdir())


@contextmanager
def largest_file(n_bytes: int):
    """No file of this process may grow beyond a size: the system refuses as it does where the disk
    is full. Python, which would leave half of a compiled module, keeps none meanwhile.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "dont_write_bytecode", True)
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_faiss(path: Path) -> None:
    index = faiss.IndexBinaryFlat(64)
    index.add(np.zeros((10_000, 8), np.uint8))
    faiss.write_index_binary(index, str(path))


NUMBERS = np.random.default_rng(0).integers(0, 256, 80_000, dtype=np.uint8)
WRITERS = {
    "bytes": lambda path: path.write_bytes(NUMBERS.tobytes()),
    "numpy": lambda path: np.save(path.open("wb"), NUMBERS),
    "pyarrow": lambda path: pq.write_table(pa.table({"a": NUMBERS}), path),
    "torch": lambda path: torch.save({"a": torch.from_numpy(NUMBERS)}, path),
    "safetensors": lambda path: save_file({"a": torch.from_numpy(NUMBERS)}, path),
    "pillow": lambda path: Image.fromarray(NUMBERS.reshape(200, 400)).save(path, format="PNG"),
    "faiss": write_faiss,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_whoever_writes_a_full_disk_is_named_and_nothing_half_is_left(tmp_path, write):
    target = tmp_path / "file"
    target.write_text("old")
    says = f"{target}: .*; make room"
    with largest_file(10_000), pytest.raises(NoSpaceError, match=says), atomic_path(target) as path:
        write(path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "old")]
    with atomic_path(target) as path:
        write(path)
    assert target.stat().st_size > 20_000


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_a_quota_and_a_limit_are_alike(number):
    with (
        pytest.raises(NoSpaceError, match=f"codes: {os.strerror(number)}; make room"),
        space_for(Path("codes")),
    ):
        raise OSError(number, os.strerror(number))


def test_a_training_without_room_names_the_file_and_goes_on_when_there_is(tmp_path, capsys):
    config = feature_config(tmp_path / "run.yaml", write_features(tmp_path / "f.npz"), epochs=2)
    out = tmp_path / "run"
    with largest_file(6000):
        says = "; make room, then continue with: channelhash train "
        assert_refused(capsys, "train", config, "--out", out, says=says, status=1)
    assert not [path for path in out.rglob("*") if path.name.endswith(".tmp")]
    assert run_command("train", config, "--out", out, "--resume") == 0
