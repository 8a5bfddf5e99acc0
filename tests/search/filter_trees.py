"""Filters as trees, what they mean by three-valued logic over dictionaries, and items that they tell apart."""

import random
import re
import unicodedata

from hypothesis import strategies as st

KEYS = ("year", "score", "sharp", "text", "my key")
STRINGS = (
    "", "a", "b'c", "sea%", "a_b", "A", "Sea", "日本", "a\nb", 'd"e', "\\", "\\%", "a*", "[a]", "?", "é", "e\u0301",
    "É", "1", "true", "😀", "\uffff",
)  # fmt: skip
#: Stores keep letters and accents of labels in one form.
LABELS = tuple(dict.fromkeys(unicodedata.normalize("NFC", text) for text in STRINGS))
#: Among them neighbours of which one has more than the 53 bits of a float.
NUMBERS = (
    -3, 0, 1, 2, 1.5, -0.25, 0.1, 1e-300, 10**15, 2**53, 2**53 + 1, 2.0**53, 2**60, 2.0**60, 2**60 + 1, 1e17, 1e23,
    2**63 - 1, -(2**63), 2.0**63, 1.7e308,
)  # fmt: skip
ITEMS = st.fixed_dictionaries(
    {"id": st.sampled_from(STRINGS), "labels": st.lists(st.sampled_from(LABELS), max_size=3)},
    optional={key: st.sampled_from((*STRINGS, *NUMBERS, True, False)) for key in KEYS},
)


def literal(value) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def like(value: str, pattern: str) -> bool:
    expression = "".join({"%": ".*", "_": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(expression, value, re.DOTALL) is not None


def kind(value) -> type:
    return bool if isinstance(value, bool) else str if isinstance(value, str) else float


TESTS = {
    "=": lambda value, of: value == of[0], "<>": lambda value, of: value != of[0],
    "!=": lambda value, of: value != of[0], "<": lambda value, of: value < of[0],
    "<=": lambda value, of: value <= of[0], ">": lambda value, of: value > of[0],
    ">=": lambda value, of: value >= of[0], "IN": lambda value, of: value in of,
    "BETWEEN": lambda value, of: of[0] <= value <= of[1], "LIKE": lambda value, of: like(value, of[0]),
}  # fmt: skip


def truth(tree, item) -> bool | None:
    """Whether a filter holds: True, False or, where a value is not known, None; Kleene's logic, as SQL's."""
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
    if key not in item or kind(item[key]) is not kind(of[0]):
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


PATTERNS = st.sampled_from(STRINGS) | st.lists(st.sampled_from([*STRINGS, "%", "_"]), max_size=3).map("".join)


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
    lambda trees: st.tuples(st.just("NOT"), trees) | st.tuples(st.sampled_from(("AND", "OR")), trees, trees, trees),
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
