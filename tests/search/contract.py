"""What every store must do, against a dictionary, and what filters mean, by three-valued logic:
shared by all.
"""

import random
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.search.servers import postgres_address

import channelhash as ch
from channelhash.codes.stage import Stage
from channelhash.search.items import Metadata
from channelhash.search.rank import KeyedAnswers
from channelhash.search.store import Answers, Store
from refusals import check_refusal

N_BITS = 12


@dataclass(frozen=True)
class Kind:
    """A store under test.

    Attributes:
        open: opens the store of a folder, the same one each time.
        ties_by_id: whether, of items that are equally near, the first by id are found; if not, any
            of them may be.
        runs: how many sequences of random calls are tried.
        projected: whether it keeps projections.
    """

    open: Callable[[Path], Store]
    ties_by_id: bool = True
    runs: int = 10
    projected: bool = False


def kinds(projected: bool) -> dict[str, Kind]:
    """Name -> store. Codes have `N_BITS` bits."""
    options = {"n_bits": N_BITS, "stage": Stage(N_BITS) if projected else None}
    return {
        "embedded": Kind(
            lambda folder: ch.open_store(folder / "store", **options), projected=projected
        ),
        "postgres": Kind(
            lambda folder: ch.open_store(postgres_address(folder), **options), projected=projected
        ),
    }


#: What compares projections.
STAGE = Stage(N_BITS)
KINDS, PROJECTED = kinds(projected=False), kinds(projected=True)

KEYS = ("year", "score", "sharp", "text", "my key")
STRINGS = (
    "",
    "a",
    "b'c",
    "sea%",
    "a_b",
    "A",
    "Sea",
    "日本",
    "a\nb",
    'd"e',
    "\\",
    "\\%",
    "a*",
    "[a]",
    "?",
    "é",
    "e\u0301",
    "É",
    "1",
    "true",
    "😀",
    "\uffff",
    "漢\u2028",
)
#: Stores keep letters and accents of labels in one form.
LABELS = tuple(dict.fromkeys(unicodedata.normalize("NFC", text) for text in STRINGS))
#: Among them neighbours of which one has more than the 53 bits of a float.
NUMBERS = (
    -3,
    0,
    1,
    2,
    1.5,
    2.0,
    -0.25,
    0.1,
    5e-324,
    1e-300,
    10**15,
    2**53,
    2**53 + 1,
    2.0**53,
    1e16,
    2**60,
    2.0**60,
    2**60 + 1,
    1e17,
    -1.2345678901234567e17,
    1e23,
    2**63 - 1,
    -(2**63),
    2.0**63,
    1.7976931348623157e308,
)
ITEMS = st.fixed_dictionaries(
    {"id": st.sampled_from(STRINGS), "labels": st.lists(st.sampled_from(LABELS), max_size=3)},
    optional={key: st.sampled_from((*STRINGS, *NUMBERS, True, False)) for key in KEYS},
)


def literal(value) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def like(value: str, pattern: str) -> bool:
    expression = "".join(
        {"%": ".*", "_": "."}.get(character, re.escape(character)) for character in pattern
    )
    return re.fullmatch(expression, value, re.DOTALL) is not None


def type_of(value) -> type:
    return bool if isinstance(value, bool) else str if isinstance(value, str) else float


TESTS = {
    "=": lambda value, of: value == of[0],
    "<>": lambda value, of: value != of[0],
    "!=": lambda value, of: value != of[0],
    "<": lambda value, of: value < of[0],
    "<=": lambda value, of: value <= of[0],
    ">": lambda value, of: value > of[0],
    ">=": lambda value, of: value >= of[0],
    "IN": lambda value, of: value in of,
    "BETWEEN": lambda value, of: of[0] <= value <= of[1],
    "LIKE": lambda value, of: like(value, of[0]),
}


def truth(tree, item) -> bool | None:
    """Whether a filter holds: True, False or, where a value is not known, None; Kleene's logic, as
    SQL's.
    """
    word, *parts = tree
    if word == "NOT":
        inside = truth(parts[0], item)
        return None if inside is None else not inside
    if word in ("AND", "OR"):
        inside = [truth(part, item) for part in parts]
        decides = word == "OR"
        return decides if decides in inside else None if None in inside else not decides
    key, of = parts
    if word == "IS NULL":
        return not item["labels"] if key == "label" else key not in item
    if key == "label":
        composed = [unicodedata.normalize("NFC", text) for text in of]
        return any(TESTS[word](label, composed) for label in item["labels"])
    if key not in item or type_of(item[key]) is not type_of(of[0]):
        return None
    return TESTS[word](item[key], of)


def written(tree) -> str:
    word, *parts = tree
    if word == "NOT":
        return f"NOT ({written(parts[0])})"
    if word in ("AND", "OR"):
        return "(" + f" {word} ".join(map(written, parts)) + ")"
    key, of = parts
    name = f'"{key}"' if " " in key else key
    if word == "IS NULL":
        return f"{name} IS NULL"
    if word == "IN":
        return f"{name} IN ({', '.join(map(literal, of))})"
    if word == "BETWEEN":
        return f"{name} BETWEEN {literal(of[0])} AND {literal(of[1])}"
    return f"{name} {word} {literal(of[0])}"


PATTERNS = st.sampled_from(STRINGS) | st.lists(
    st.sampled_from([*STRINGS, "%", "_"]), max_size=3
).map("".join)


@st.composite
def conditions(draw):
    key = draw(st.sampled_from((*KEYS, "id", "label")))
    word = draw(st.sampled_from((*TESTS, "IS NULL")))
    if word == "IS NULL":
        return word, key, ()
    kinds = [STRINGS] if word == "LIKE" or key in ("id", "label", "text") else [STRINGS, NUMBERS]
    if word in ("=", "!=", "<>", "IN") and len(kinds) > 1:
        kinds.append((True, False))
    values = PATTERNS if word == "LIKE" else st.sampled_from(draw(st.sampled_from(kinds)))
    return word, key, tuple(draw(st.lists(values, min_size=2, max_size=3)))


TREES = st.recursive(
    conditions(),
    lambda trees: (
        st.tuples(st.just("NOT"), trees)
        | st.tuples(st.sampled_from(("AND", "OR")), trees, trees, trees)
    ),
    max_leaves=6,
)


def items_of(n: int) -> list[dict]:
    """The same ``n`` items each time, with ids and metadata that have been trouble somewhere."""
    draw = random.Random(0)
    values = (*STRINGS, *NUMBERS, True, False)
    items = []
    for number in range(n):
        labels = draw.choices(LABELS, k=draw.randrange(3))
        item = {key: draw.choice(values) for key in KEYS if key != "text" and draw.random() < 0.7}
        text = {"text": draw.choice(STRINGS)} if draw.random() < 0.7 else {}
        name = STRINGS[number] if number < len(STRINGS) else f"{number}"
        items.append({"id": name, "labels": labels, **item, **text})
    return items


#: Ids that have been trouble somewhere, in no order.
ODD_IDS = [
    "",
    "b",
    "a'b",
    'a"b',
    "x\ny",
    "漢字",
    "é",
    "😀",
    "\uffff",
    "%",
    "_",
    "a;--",
    " ",
    "B",
    "10",
    "9",
    "x" * 300,
]

#: Filters as trees.
FILTERS = (
    ("=", "label", ("dog",)),
    ("NOT", ("=", "label", ("dog",))),
    ("IN", "label", ("dog", "it's")),
    ("NOT", ("IN", "label", ("dog", "it's"))),
    ("IS NULL", "label", ()),
    (">=", "year", (2000,)),
    ("NOT", (">=", "year", (2000,))),
    ("IS NULL", "year", ()),
    ("OR", ("BETWEEN", "year", (1990, 2000.5)), ("=", "label", ("cat",))),
    ("LIKE", "text", ("%sea%",)),
    ("NOT", ("LIKE", "text", ("_ sea",))),
    (">", "id", ("b",)),
    (
        "AND",
        ("=", "sharp", (True,)),
        ("NOT", ("OR", ("=", "year", (2000,)), ("=", "text", ("a sea",)))),
    ),
    ("OR", ("IN", "id", ("", "é")), ("<", "score", (-0.5,))),
)


NAMES = st.sampled_from(ODD_IDS) | st.text(max_size=4).filter(lambda name: "\0" not in name)
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.lists(st.sampled_from(["dog", "cat", "it's", "漢"]), max_size=3) | st.none(),
        "year": st.integers(1985, 2010) | st.just(2000.25) | st.none(),
        "score": st.floats(-2, 2),
        "sharp": st.booleans(),
        "text": st.sampled_from(["a sea", "the sea\n", "sky", "Sea", 'x"y', ""]) | st.none(),
    },
)


@dataclass
class Expected:
    """The items that a store should have: id -> modality -> bits, and outputs, and id ->
    metadata.
    """

    codes: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    metadata: dict[str, dict[str, object]] = field(default_factory=dict)
    outputs: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    def write(
        self,
        ids: list[str],
        codes: dict[str, np.ndarray],
        metadata: list[Metadata] | None,
        outputs: dict[str, np.ndarray] | None = None,
    ) -> None:
        """What `Store.upsert` does; bits, not packed."""
        for row, name in enumerate(ids):
            rows = {modality: values[row] for modality, values in (outputs or {}).items()}
            self.outputs.setdefault(name, {}).update(rows)
            self.codes.setdefault(name, {}).update(
                {modality: bits[row] for modality, bits in codes.items()}
            )
            known = self.metadata.setdefault(name, {})
            known.update(metadata[row] if metadata else {})
            self.metadata[name] = {key: value for key, value in known.items() if value is not None}

    def delete(self, ids: list[str]) -> int:
        """What `Store.delete` does."""
        there = [name for name in ids if name in self.codes]
        for name in there:
            del self.codes[name], self.metadata[name]
            self.outputs.pop(name, None)
        return len(there)

    def passing(self, tree: tuple | None) -> list[str]:
        """The items that pass a filter."""
        items = {
            name: {"labels": [], **values, "id": name} for name, values in self.metadata.items()
        }
        return sorted(name for name, item in items.items() if tree is None or truth(tree, item))


def check_answers(
    kind: Kind,
    found: Answers,
    queries: np.ndarray,
    there: dict[str, np.ndarray],
    k: int | None,
    radius: int | None,
) -> None:
    """Compare what queries (bits) found with sorting everything by (distance, id)."""
    assert len(found.ids) == len(found.distances) == len(queries)
    for query, ids, distances in zip(queries, found.ids, found.distances, strict=True):
        distance_of = {name: int((query != bits).sum()) for name, bits in there.items()}
        expected = sorted((distance, name) for name, distance in distance_of.items())
        expected = [pair for pair in expected if radius is None or pair[0] <= radius][:k]
        answers = list(zip(distances.tolist(), ids, strict=True))
        assert distances.tolist() == [distance for distance, _ in expected], (
            f"k = {k}, radius = {radius}: other items"
        )
        if kind.ties_by_id:
            assert answers == expected
        else:
            assert answers == sorted(set(answers))
            assert all(distance_of[name] == distance for distance, name in answers)


def check_scored(
    found: KeyedAnswers,
    queries: np.ndarray,
    there: dict[str, np.ndarray],
    outputs: dict[str, np.ndarray],
    k: int,
    first: int,
) -> None:
    """Compare what queries (outputs) found in two stages with sorting the first by outputs, then by
    score.
    """
    for query, ids, distances, scores in zip(queries, *found, strict=True):
        rows = []
        for _, bits, name in rows_by_outputs(query, there)[:first]:
            projection = STAGE.encode("image", outputs[name][None])
            score = STAGE.scores("image", query, projection)[0]
            rows.append((-float(score), bits, name))
        answers = zip((-scores).tolist(), distances.tolist(), ids, strict=True)
        assert list(answers) == sorted(rows)[:k]


def check_outputs(
    found: KeyedAnswers,
    queries: np.ndarray,
    bits: dict[str, np.ndarray],
    k: int | None,
    radius: int | None,
) -> None:
    """Compare what queries (outputs) found with sorting the nearest codes by the outputs of the
    bits that differ; within a radius by distance first.
    """
    assert len(found.ids) == len(queries)
    for query, ids, distances, keys in zip(queries, *found, strict=True):
        rows = rows_by_outputs(query, bits)
        half = 2 * np.abs(query).sum()
        if radius is None:
            best = rows[:k]
            expected = [sure for sure, _, _ in best]
        else:
            best = sorted((bit, sure, name) for sure, bit, name in rows if bit <= radius)[:k]
            expected = [bit + sure / half for bit, sure, _ in best]
            best = [(sure, bit, name) for bit, sure, name in best]
        assert distances.tolist() == [bit for _, bit, _ in best]
        np.testing.assert_allclose(keys, expected)
        assert ids == [name for *_, name in best]


def rows_by_outputs(query: np.ndarray, bits: dict[str, np.ndarray]) -> list[tuple[float, int, str]]:
    """Return asymmetric distance, distance and id of every item, nearest first."""
    rows = []
    for name, code in bits.items():
        differs = (query >= 0) != code
        rows.append((float(np.abs(query[differs]).sum()), int(differs.sum()), name))
    return sorted(rows)


def check_contents(store: Store, expected: Expected) -> None:
    """Compare everything that a store says about its items."""
    names = sorted(expected.codes)
    assert (len(store), store.ids()) == (len(names), names)
    assert store.modalities == tuple(
        sorted({modality for codes in expected.codes.values() for modality in codes})
    )
    for modality in store.modalities:
        ids, codes = store.codes(modality)
        assert ids == [name for name in names if modality in expected.codes[name]]
        assert (
            codes.tobytes()
            == ch.codes.pack(np.array([expected.codes[name][modality] for name in ids])).tobytes()
        )
    for item in store.get(names):
        assert item.metadata == expected.metadata[item.id]
        assert item.codes.keys() == expected.codes[item.id].keys()
        for modality, bits in expected.codes[item.id].items():
            np.testing.assert_array_equal(
                ch.codes.unpack(item.codes[modality][None], N_BITS)[0], bits
            )
        kept = {
            name: STAGE.encode(name, row[None])[0].tolist()
            for name, row in expected.outputs.get(item.id, {}).items()
        }
        assert {name: row.tolist() for name, row in item.projections.items()} == kept
    listed = {item.id: item for item in store.listed()}
    assert listed.keys() == expected.codes.keys()
    for name, item in listed.items():
        assert (item.modalities, item.metadata) == (
            tuple(sorted(expected.codes[name])),
            expected.metadata[name],
        )
    counts = Counter(
        label for values in expected.metadata.values() for label in set(values.get("labels", []))
    )
    assert list(store.label_counts().items()) == sorted(
        counts.items(), key=lambda pair: (-pair[1], pair[0])
    )
    for key in ("text", "year"):
        counts = Counter(
            values[key] for values in expected.metadata.values() if isinstance(values.get(key), str)
        )
        assert list(store.value_counts(key).items()) == sorted(
            counts.items(), key=lambda pair: (-pair[1], pair[0])
        )


def bits_of(random: np.random.Generator, n: int) -> np.ndarray:
    """Codes of which many are equal or near each other."""
    prototypes = np.random.default_rng(0).random((3, N_BITS)) < 0.5
    return prototypes[random.integers(0, 3, n)] ^ (random.random((n, N_BITS)) < 0.05)


def outputs_of(random: np.random.Generator, bits: np.ndarray) -> np.ndarray:
    """Outputs that have these bits, some of them alike."""
    # whose sums are exact
    return np.where(bits, 1, -1) * random.choice([0.125, 0.5, 1.0], bits.shape)


def random_codes(n: int, seed: int = 0, n_bits: int = N_BITS) -> np.ndarray:
    return ch.codes.pack(np.random.default_rng(seed).random((n, n_bits)) < 0.5)


class AgainstADictionary(RuleBasedStateMachine):
    """Any calls in any order: the store answers as sorting a dictionary does."""

    kind: Kind

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store = self.kind.open(Path(self.folder.name))
        self.expected = Expected()
        every_key = {"labels": ["dog"], "year": 2000, "score": 0.0, "sharp": True, "text": "a sea"}
        self.write(["first"], 0, ["image"], [every_key], replace=False)

    def write(self, names, seed, modalities, metadata, replace) -> None:
        random = np.random.default_rng(seed)
        bits = {modality: bits_of(random, len(names)) for modality in modalities}
        call = self.store.upsert if replace else self.store.add
        outputs = {modality: outputs_of(random, values) for modality, values in bits.items()}
        projections = outputs if self.kind.projected else None
        codes = {modality: ch.codes.pack(values) for modality, values in bits.items()}
        call(names, codes, metadata=metadata, projections=projections)
        self.expected.write(names, bits, metadata, projections)

    @rule(
        names=st.lists(NAMES, unique=True, max_size=8),
        seed=st.integers(0, 1000),
        modalities=st.sets(st.sampled_from(["image", "text"]), min_size=1),
        metadata=st.lists(METADATA, min_size=8, max_size=8) | st.none(),
        replace=st.booleans(),
    )
    def add(self, names, seed, modalities, metadata, replace) -> None:
        modalities = sorted(modalities)
        values = metadata and metadata[: len(names)]
        there = [
            name
            for name in names
            for modality in modalities
            if modality in self.expected.codes.get(name, {})
        ]
        if replace or not there:
            self.write(names, seed, modalities, values, replace)
        else:
            check_refusal("already", self.write, names, seed, modalities, values, replace)

    @rule(names=st.lists(NAMES, unique=True, max_size=8))
    def delete(self, names) -> None:
        assert self.store.delete(names) == self.expected.delete(names)

    @rule(unknown=NAMES, metadata=st.lists(METADATA, min_size=3, max_size=3))
    def update(self, unknown, metadata) -> None:
        if unknown not in self.expected.codes:
            check_refusal("no item has the id", self.store.update, [unknown], metadata[:1])
        names = sorted(self.expected.codes)[: len(metadata)]
        self.store.update(names, metadata[: len(names)])
        self.expected.write(names, {}, metadata[: len(names)])

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.kind.open(Path(self.folder.name))

    @rule(
        seed=st.integers(0, 1000),
        n=st.integers(0, 3),
        k=st.integers(1, 40),
        radius=st.integers(0, N_BITS + 1),
        chosen=st.sampled_from(FILTERS) | st.none(),
    )
    def search(self, seed, n, k, radius, chosen) -> None:
        queries = bits_of(np.random.default_rng(seed), n)
        where, passing = chosen and written(chosen), self.expected.passing(chosen)
        for modality in self.store.modalities:
            codes = {name: self.expected.codes[name] for name in passing}
            there = {
                name: of_item[modality] for name, of_item in codes.items() if modality in of_item
            }
            rows = outputs_of(np.random.default_rng(seed), queries)
            for count, bound in ((k, None), (None, radius), (k, radius)):
                if bound is None:
                    found = self.store.search(ch.codes.pack(queries), k, modality, where)
                else:
                    found = self.store.search_radius(
                        ch.codes.pack(queries), bound, modality, where, limit=count
                    )
                check_answers(self.kind, found, queries, there, count, bound)
                by_outputs = self.store.search_outputs(rows, count, modality, where, bound)
                if type(self.store)._by_outputs is Store._by_outputs:  # without codes at hand
                    found = Answers(*by_outputs[:2])
                    check_answers(self.kind, found, rows >= 0, there, count, bound)
                else:
                    check_outputs(by_outputs, rows, there, count, bound)
            if self.kind.projected:
                kept = {name: self.expected.outputs[name][modality] for name in there}
                for first in (None, radius + 1):  # None: all of so few
                    scored = self.store.search_projections(rows, k, modality, where, first)
                    check_scored(
                        scored, rows, there, kept, k, len(there) if first is None else max(k, first)
                    )
        assert self.store.ids(where) == passing

    @invariant()
    def contents(self) -> None:
        if hasattr(self, "expected"):
            check_contents(self.store, self.expected)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()


def check_any_calls(kind: Kind) -> None:
    """Run `AgainstADictionary`, on the same examples each time."""

    machine = type("Machine", (AgainstADictionary,), {"kind": kind})
    few = settings(
        max_examples=kind.runs,
        stateful_step_count=12,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=few)
