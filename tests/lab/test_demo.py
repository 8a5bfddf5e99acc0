import numpy as np

from channelhash.codes import CodeSet
from channelhash.data.synthetic import _WORDS
from channelhash.lab import demo
from channelhash.lab.demo import _TEXT_QUERIES, _answer_rows, _answer_texts


class OneAnswer:
    """A model whose code of every text is the same."""

    def encode_texts(self, texts: list[str]) -> np.ndarray:
        return np.zeros((len(texts), 1), dtype=np.uint8)


def test_an_answer_fits_if_it_has_every_label_of_the_words():
    shown = [
        {"sunset", "sea"},
        {"sunset"},
        {"dog", "sea"},
        {"dog"},
        {"flower"},
        {"portrait", "female"},
        {"night"},
    ]
    labels = np.array(
        [[label in item for label in _WORDS] for item in [*shown, {"dog"}, {"sky"}, {"dog"}]]
    )
    codes = np.array([[0]] * len(shown) + [[255]] * 3, dtype=np.uint8)
    database = CodeSet(
        [f"im{i}" for i in range(10)], {"image": codes}, labels, 8, label_names=tuple(_WORDS)
    )
    sheet, fits = _answer_texts(OneAnswer(), database)
    assert fits == {
        "sunset beach": {"fitting": 1, "shown": 7, "chance": 0.1},
        "dog": {"fitting": 2, "shown": 7, "chance": 0.4},
        "city at night": {"fitting": 0, "shown": 7, "chance": 0.0},
        "flowers": {"fitting": 1, "shown": 7, "chance": 0.1},
        "portrait of a woman": {"fitting": 1, "shown": 7, "chance": 0.1},
    }
    assert [row[0].caption for row in sheet] == list(_TEXT_QUERIES)
    assert [cell.right for cell in sheet[1]] == [
        None,
        False,
        False,
        True,
        True,
        False,
        False,
        False,
    ]


def test_the_queries_ask_for_labels_that_are_drawn():
    assert {label for wanted in _TEXT_QUERIES.values() for label in wanted} <= set(_WORDS)


def test_answers_are_right_if_they_share_a_label(monkeypatch):
    labels, ids = np.eye(2, dtype=bool)[[0, 0, 1]], ["a", "b", "c"]
    texts = CodeSet(
        ids, {"text": np.array([[0], [1], [3]], np.uint8)}, labels, 8, ("x", "y"), texts=ids
    )
    images = CodeSet(ids, {"image": np.array([[0], [1], [255]], np.uint8)}, labels, 8, ("x", "y"))
    monkeypatch.setattr(demo, "_ANSWERS", 2)
    rows = _answer_rows(images, texts)
    assert [row[0].caption for row in rows] == ["x", "x", "y"]
    assert [[cell.right for cell in row[1:]] for row in rows] == [
        [True, True],
        [True, True],
        [True, False],
    ]
    assert [cell.caption.split()[0] for cell in rows[2][1:]] == ["6", "7"]
