"""Arrays from files that nobody vouches for."""

import io

import numpy as np
import pytest

from channelhash.utils.npy_files import array_from_npy, read_npy


def saved(values: object, **options: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, values, **options)
    return file.getvalue()


@pytest.mark.parametrize("values", [np.arange(6).reshape(2, 3), np.array(7), np.empty((2, 0), np.uint32), np.eye(2)])
def test_arrays_come_back(values, tmp_path):
    np.save(tmp_path / "a.npy", values)
    found = read_npy(tmp_path / "a.npy")
    np.testing.assert_array_equal(found, values)
    assert (found.dtype, found.flags.writeable, found.flags.aligned) == (values.dtype, False, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an array's file"),
        (b"no array", "not an array's file"),
        (saved(np.array([{}], object), allow_pickle=True), "an array of object"),
        (saved(np.asfortranarray(np.eye(3))), "of another layout"),
        (saved(np.arange(3, dtype=">i8")), "an array of >i8"),
        (saved(np.array(["a"])), "an array of <U1"),
        (saved(np.arange(3))[:-1], "23 bytes of values where the shape is"),
        (saved(np.arange(3)) + b"x", "25 bytes of values"),
        (saved(np.arange(3)).replace(b"(3,)", b"(-3,"), "not an array's file"),
        (saved(np.arange(3)).replace(b"(3,), ", b"(-3,),"), "24 bytes of values where the shape is"),
    ],
)
def test_other_files_are_refused(content, message, tmp_path):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match=f"a.npy: .*{message}"):
        read_npy(tmp_path / "a.npy")


def test_any_changed_byte_of_a_header_is_refused_or_harmless():
    content = saved(np.arange(3, dtype=np.uint32))
    for place in range(128):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            try:
                values = array_from_npy(bytes(changed))
            except ValueError:
                continue
            assert values.nbytes == 12
