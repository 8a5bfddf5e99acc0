"""An index from files that nobody vouches for: whatever they hold is refused, or searched without leaving an array."""

import numpy as np
import pytest
from tests.search.index.test_index import draw

from channelhash.search import index as code_index
from channelhash.search.index import CodeIndex
from channelhash.search.items import MOST_BITS
from refusals import check_refusal

BITS = 44


@pytest.fixture(autouse=True)
def nothing_given_up(monkeypatch):
    """Search in clusters to the end, whatever it costs."""
    monkeypatch.setattr(code_index, "_FRACTION", 1e-9)


def arrays() -> dict[str, np.ndarray]:
    """The arrays of an index of 300 codes in clusters around two prototypes."""
    index = CodeIndex.build(draw(300, BITS, 2, 0), BITS, clusters=True)
    return {name: values.copy() for name, values in index.arrays().items()}


def put(name: str, place: object, value: object) -> object:
    return lambda of: of[name].__setitem__(place, value)


def change(name: str, make) -> object:
    return lambda of: of.update({name: make(of[name])})


NAMES = ("codes", "starts", "rows", "cluster_pivots", "cluster_reach", "cluster_offsets", "cluster_shift")
FORGERIES = {
    **{f"{name} of another type": change(name, lambda values: values.astype(np.float64)) for name in NAMES},
    **{f"fewer {name}": change(name, lambda values: values[..., :-1].copy()) for name in NAMES},
    **{f"{name} in a row": change(name, lambda values: values.reshape(-1)[:1].copy()[0]) for name in NAMES},
    **{f"more {name}": change(name, lambda values: values.repeat(2, axis=0)) for name in NAMES},
    "no rows": lambda of: of.pop("rows"),
    "no reach": lambda of: of.pop("cluster_reach"),
    **{f"n_bits {n_bits!r}": change("n_bits", lambda _, value=n_bits: np.array(value))
       for n_bits in (44.0, [44, 44], 0, 32, 43, MOST_BITS + 1)},
    "padding": put("codes", (0, 7), 1),
    "starts behind the rows": put("starts", -1, 301),
    "starts not from 0": put("starts", 0, 1),
    "starts that go back": put("starts", 1, 200),
    "a code without rows": lambda of: put("starts", 2, of["starts"][1])(of),
    "a row behind the last": put("rows", 5, 300),
    "a row twice": lambda of: put("rows", 5, of["rows"][6])(of),
    "no pivots": lambda of: of.update(
        {name: of[name][:, :0].copy() if name == "cluster_pivots" else of[name][:0].copy() for name in NAMES[3:6]}
    ),
    "a huge shift of distances": put("cluster_shift", 0, np.iinfo(np.int64).max),
    "a shift of distances below 0": put("cluster_shift", 0, -1),
    "an offset of a pivot behind the codes": put("cluster_offsets", (-1, -1), 301),
    "an offset of a pivot not from 0": put("cluster_offsets", (0, 0), 1),
    "offsets of pivots that go back": put("cluster_offsets", (0, 1), 1 << 31),
    "codes of no pivot": lambda of: put("cluster_offsets", (0, -1), of["cluster_offsets"][0, -2])(of),
}  # fmt: skip


def search_in(index: CodeIndex) -> None:
    queries = draw(3, index.n_bits, 2, 1)
    for k in (1, 400):
        index.nearest(queries, k)
        index.nearest(queries, k, np.arange(len(index)) % 3 == 0)
    index.within(queries, index.n_bits)
    index.within(queries, 4)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_arrays_that_do_not_fit_are_refused(forgery):
    of = arrays()
    FORGERIES[forgery](of)
    check_refusal(r"^.+$", CodeIndex.from_arrays, of, error=ValueError)


@pytest.mark.parametrize("n", [50, pytest.param(5_000, marks=pytest.mark.slow)])
def test_arrays_with_changed_bytes_are_refused_or_searched(n):
    """A search of the changed arrays would end the tests by a signal if it left one of them."""
    random = np.random.default_rng(0)
    whole = arrays()
    refused = 0
    for _ in range(n):
        name = random.choice(list(whole))
        values = whole[name].copy()
        content = values.reshape(-1).view(np.uint8)
        content[random.integers(0, len(content), random.integers(0, 4))] = random.integers(256)
        try:
            search_in(CodeIndex.from_arrays(whole | {name: values}))
        except ValueError:
            refused += 1
    assert 0 < refused < n


def test_codes_of_more_bits_than_a_distance_holds_are_refused():
    longest = np.full((2, -(-MOST_BITS // 8)), 255, np.uint8)
    longest[:, -1] = 0b11111100
    (found,) = CodeIndex.build(longest, MOST_BITS).nearest(np.zeros_like(longest[:1]), 5)
    assert found.distances.tolist() == [MOST_BITS] * 2
    check_refusal("65535 bits cannot be searched", CodeIndex.build, longest, MOST_BITS + 1, error=ValueError)
