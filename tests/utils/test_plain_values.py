"""What every type of an Arrow column becomes."""

import datetime
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

from channelhash.data.cells import text_of
from channelhash.utils.plain_values import plain_values
from refusals import check_refusal

DAY = datetime.date(2019, 7, 14)
KEY = uuid.UUID(int=7)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([None, None]), [None, None]),
        (pa.array([True, None]), [True, None]),
        (pa.array([2**63, 2**64 - 1], pa.uint64()), [2**63, 2**64 - 1]),
        (pa.array([1.5, float("nan"), float("-inf"), None]), [1.5, None, None, None]),
        (pa.array([0.5, float("nan")], pa.float16()), [0.5, None]),
        (pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)), [1.5, None]),
        (pa.array([Decimal(2**70)], pa.decimal256(40, 0)), [2**70]),
        (pa.array(["é", None], pa.large_string()), ["é", None]),
        (pa.array(["é", None], pa.string_view()), ["é", None]),
        (pa.array([1.0, float("nan")]).dictionary_encode(), [1.0, None]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]), ["a", "a", "b"]),
        (pa.array([b"\xff"], pa.binary_view()), [b"\xff"]),
        (pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        (pa.array([DAY, None]), ["2019-07-14", None]),
        (pa.array([DAY], pa.date64()), ["2019-07-14"]),
        (pa.array([datetime.time(1, 2, 3)], pa.time32("ms")), ["01:02:03"]),
        (pa.array([1], pa.time64("ns")), ["00:00:00.000000001"]),
        (pa.array([1_563_099_630, None], pa.timestamp("s")), ["2019-07-14 10:20:30", None]),
        (
            pa.array([1_563_099_630_000_000], pa.timestamp("us", "Europe/Berlin")),
            ["2019-07-14 12:20:30+02:00"],
        ),
        (
            pa.array([1_563_099_630_500], pa.timestamp("ms", "UTC")),
            ["2019-07-14 10:20:30.500+00:00"],
        ),
        (
            pa.array([2**62], pa.timestamp("us")),
            ["17036-07-06 14:00:27.387904"],
        ),  # of no year that Python knows
        (pa.array([2000, 1500, None], pa.duration("ms")), [2, 1.5, None]),
        (pa.array([["a", None], None, []]).slice(1), [None, []]),
        (pa.array([["a"], ["b", "c"]], pa.large_list(pa.string())), [["a"], ["b", "c"]]),
        (pa.array([["a", "b"], None], pa.list_(pa.string(), 2)), [["a", "b"], None]),
        # PyArrow's own cast makes wrong lists of these.
        (pa.array([["a"], None, ["b", "c"]], pa.list_view(pa.string())), [["a"], None, ["b", "c"]]),
        (pa.array([[[float("nan")]]]), [[[None]]]),
        (pa.array([{"a": Decimal("1.5")}, None]), [{"a": 1.5}, None]),
        (
            pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            [[{"key": "a", "value": 1}], None],
        ),
        (pa.array([KEY.bytes, None], pa.uuid()), [str(KEY), None]),
        (pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}'])), ['{"a": 1}']),
        (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())), [True, None]),
        (pa.chunked_array([["a"], ["b"]]), ["a", "b"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array | pa.ChunkedArray) else "",
)
def test_every_type_has_plain_values(column, expected):
    values = plain_values(column)
    assert values == expected
    assert [type(value) for value in values] == [type(value) for value in expected]


def test_a_type_that_no_table_file_has_is_refused():
    union = pa.UnionArray.from_dense(
        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
    )
    check_refusal("values of type dense_union", plain_values, union, error=ValueError)


def test_a_text_that_is_not_utf8_is_the_fault_of_its_cell_alone():
    ends = pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0")
    content = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"a\xff")])
    good, bad = plain_values(content)
    assert good == "a"
    check_refusal("is not UTF-8 text", text_of, bad, error=ValueError)
