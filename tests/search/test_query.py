"""Questions to a store and their answers, against sorting everything; and the language of
questions, with its dates and places.
"""

import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

import channelhash as ch
from channelhash.errors import InputError
from channelhash.search import question as module
from channelhash.search.hits import Query, SearchOptions, answer
from channelhash.search.plan import combine, make_query
from channelhash.search.query import load_encoder, search_store
from channelhash.search.question import Part, Question, parse_question, query_like
from channelhash.search.rank import Ranking, asymmetric_distances, fuse
from channelhash.search.sqlite.store import open_codes
from channelhash.text.phrases import find_phrases
from channelhash.text.places import PlaceNames
from refusals import check_refusal
from small_stores import small_model

N = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def store(tmp_path_factory, model):
    """Random codes, many of them equal; ``text-only`` has no image code."""
    folder = tmp_path_factory.mktemp("stores") / "store"
    random = np.random.default_rng(0)
    codes = {
        m: ch.codes.pack((random.random((9, 12)) < 0.5)[random.integers(0, 9, N)])
        for m in ("image", "text")
    }
    labels = [["even"], []] * (N // 2)
    metadata = [{"text": f"words {i}", "labels": labels[i], "year": i} for i in range(N)]
    opened = ch.open_store(folder, model.n_bits, model.fingerprint())
    opened.add([f"{i:02}" for i in range(N)], codes, metadata=metadata)
    opened.add(["text-only"], codes["text"][:1], "text")
    model.save_pretrained(folder / "model")
    return opened


def keyed(store, code, modality="image", outputs=None):
    """The key of each item, its distance and its id, best first."""
    items = [item for item in store.get(store.ids()) if modality in item.codes]
    codes = np.stack([item.codes[modality] for item in items])
    distances = ch.codes.hamming_distances(code[None], codes)[0].tolist()
    keys = distances if outputs is None else asymmetric_distances(outputs, codes).tolist()
    return sorted(zip(keys, distances, [item.id for item in items], strict=True))


def by_sorting(store, code, modality="image", outputs=None, radius=None):
    rows = keyed(store, code, modality, outputs)
    if radius is not None:
        rows = sorted((row for row in rows if row[1] <= radius), key=lambda row: row[1])
    return [(distance, name) for _, distance, name in rows]


def found(hits):
    return [(hit.distance, hit.id) for hit in hits]


def ids(hits):
    return [hit.id for hit in hits]


def test_words_and_pictures_find_the_nearest_codes(store, model):
    picture = Image.new("RGB", (20, 20), "red")
    for asked, outputs in (
        (
            {"text": "a bright red picture"},
            model.outputs("text", ["a bright red picture"])[0].numpy(),
        ),
        ({"image": picture}, model.outputs("image", [picture])[0].numpy()),
    ):
        code = ch.codes.pack(outputs[None] >= 0)[0]
        assert (
            found(search_store(store, by="image", **asked))
            == by_sorting(store, code, "image", outputs)[:10]
        )
        everything = search_store(store, SearchOptions(k=10**9, modality="text"), **asked)
        assert found(everything) == by_sorting(store, code, "text", outputs)
        near = by_sorting(store, code, "image", outputs, radius=4)
        assert found(search_store(store, SearchOptions(radius=4), **asked)) == near
        assert found(search_store(store, SearchOptions(radius=4, limit=3), **asked)) == near[:3]


def test_an_answer_tells_what_is_known_of_its_item(tmp_path):
    code = np.array([[7]], np.uint8)
    known = {"text": "a dog", "labels": ["dog"], "image": "/4.png", "year": 4}
    with ch.open_store(tmp_path / "store", n_bits=8) as store:
        store.add(["04"], code, metadata=[known])
        (hit,) = search_store(store, like="04")
    assert hit.as_dict() == {
        "id": "04", "distance": 0, "similarity": None, "match": 1.0, "fit": None, "duplicates": [],
        "text": "a dog", "labels": ["dog"], "image": "/4.png", "metadata": {"year": 4},
    }  # fmt: skip
    np.testing.assert_array_equal(hit.code, code[0])


@pytest.mark.parametrize(
    ("modality", "by", "code"),
    [
        (None, None, "image"),
        ("image", None, "image"),
        ("text", None, "text"),
        ("image", "text", "text"),
        ("text", "image", "image"),
    ],
)
def test_an_item_asks_with_its_code_of_what_is_searched_or_named(store, modality, by, code):
    item = store.get(["07"])[0]
    hits = search_store(store, SearchOptions(modality=modality), like="07", by=by)
    assert found(hits) == by_sorting(store, item.codes[code], modality or "image")[:10]


def test_an_item_asks_only_with_a_code_that_it_has(store):
    assert found(search_store(store, like="text-only", by="text"))
    check_refusal(
        r"^like text-only: has no image code; .* by text$", query_like, store, "text-only"
    )


@pytest.mark.parametrize(
    ("asked", "options", "says"),
    [
        ({}, {}, "say what to search for"),
        ({"minus": ["people"]}, {}, "say what to search for"),
        ({"text": " "}, {}, "^text: is empty"),
        ({"text": "a", "minus": [""]}, {}, "^minus: is empty"),
        (
            {"text": "a", "minus_like": ["nobody"]},
            {},
            "^minus_like nobody: .* has no item with this",
        ),
        ({"like": "nobody"}, {}, "has no item with this id"),
        ({"like": "07"}, {"by": "words"}, "^by words: the question has no words"),
        pytest.param(
            {"image": Image.new("RGB", (9, 9))},
            {"by": "words"},
            "^by words: the question has no",
            id="an image, by words",
        ),
        ({"text": "a"}, {"by": "text", "modality": "image"}, "^by text: says what is searched"),
        ({"text": "a"}, {"by": "words", "radius": 5}, "^by words: words have no distance"),
        ({"text": "a"}, {"modality": "sound"}, "holds image and text codes, no sound codes"),
        ({"text": "a"}, {"by": "sound"}, "holds image and text codes, no sound codes"),
        ({"image": Path("gone.png")}, {}, "no such picture"),
    ],
    ids=str,
)
def test_questions_that_make_no_sense_are_refused(store, asked, options, says):
    check_refusal(says, search_store, store, SearchOptions(**options), **asked)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("k", 0, "takes at least 1 answer"),
        ("collapse", -1, "takes at least 0 bits"),
    ],
)
def test_options_out_of_range_are_refused(option, value, says):
    check_refusal(f"^{option} {value}: {says}", SearchOptions, **{option: value})


def test_words_are_answered_by_all_there_is(store, model):
    code = model.encode_texts(["words 7"])[0]
    outputs = model.outputs("text", ["words 7"])[0].numpy()
    keys = [keyed(store, code, modality, outputs)[:100] for modality in ("image", "text")]
    rankings = [Ranking([name for *_, name in rows], [key for key, *_ in rows]) for rows in keys]
    lists = [[(distance, name) for _, distance, name in rows] for rows in keys]
    words = store.search_words("words 7", 100)
    assert words.ids[0] == "07"
    covered = store.search_words("words 7", 100, coverage=0.7)
    assert covered.ids == ["07"]  # all have the other word
    scores = fuse([*rankings, covered])
    assert "text-only" not in words.ids
    # text-only has a text code and may have words, but no image code: it gets for that what the
    # others get on average.
    by_image = fuse(rankings[:1])
    others = [
        name for name in scores if name != "text-only" and scores[name] > by_image.get(name, 0.0)
    ]
    scores["text-only"] *= sum(scores[n] for n in others) / sum(
        scores[n] - by_image.get(n, 0.0) for n in others
    )
    nearest = {
        name: min(d for pairs in lists for d, other in pairs if other == name) for name in scores
    }
    expected = sorted(scores, key=lambda name: (-round(scores[name], 12), nearest[name], name))
    hits = search_store(store, SearchOptions(k=99), text="words 7")
    assert (
        ids(hits)
        == ids(search_store(store, SearchOptions(k=99, by="all"), text="words 7"))
        == expected
    )
    distances = {name: distance for distance, name in by_sorting(store, code)}
    assert all(hit.distance == distances[hit.id] for hit in hits if hit.id != "text-only")
    inside = search_store(store, SearchOptions(radius=5, by="all"), text="words 7")
    assert {hit.id for hit in inside} == {
        name for name, distance in nearest.items() if distance <= 5
    }
    assert ids(search_store(store, by="words", text="words 7 -blue")) == words.ids[:10]
    assert "07" not in ids(
        search_store(store, SearchOptions(k=99), by="words", text='words red -"words 7"')
    )


def test_parts_of_a_question_are_added_up(store, model):
    picture = Image.new("RGB", (20, 20), "red")
    rows = [
        model.outputs("text", [words]).numpy()[0]
        for words in ("a dark picture", "bright red", "blue")
    ]
    rows.append(model.outputs("image", [picture]).numpy()[0])
    codes = [store.get([name])[0].codes["image"] for name in ("07", "08")]
    rows += [np.where(ch.codes.unpack(code[None], 12)[0], 1.0, -1.0) for code in codes]
    weights = [1, 2, -1, 1, 1, -1]
    added = sum(
        weight * row / np.linalg.norm(row) for weight, row in zip(weights, rows, strict=True)
    )
    expected = by_sorting(store, ch.codes.pack(ch.codes.binarize(added[None]))[0])[:10]
    asked = {"text": 'a dark picture "bright red"^2', "image": picture, "like": "07"}
    assert (
        found(search_store(store, by="image", **asked, minus=["blue"], minus_like=["08"]))
        == expected
    )
    assert ids(search_store(store, by="image", text="red^3")) == ids(
        search_store(store, by="image", text="red^2")
    )
    assert found(search_store(store, like="07", minus_like=["08"], by="image"))


def test_only_the_model_of_the_codes_encodes_questions(store, tmp_path, model):
    assert load_encoder(store).fingerprint() == model.fingerprint()
    assert small_model(tmp_path, seed=1).fingerprint() != model.fingerprint()
    check_refusal(
        "these codes were made by another model than", load_encoder, store, tmp_path / "model"
    )
    bare = ch.open_store(tmp_path / "bare", model.n_bits, model.fingerprint())
    bare.add(["a"], model.encode_texts(["red"]), "text")
    check_refusal("add model with the run that made these codes", load_encoder, bare)


def test_words_alone_have_no_distance_and_need_no_model(store):
    hits = search_store(store, by="words", text="words 7 -blue", model=Path("/nowhere"))
    assert [hit.id for hit in hits] == store.search_words("words 7", 10).ids
    assert {(hit.distance, hit.match, hit.as_dict()["distance"]) for hit in hits} == {
        (None, None, None)
    }
    assert (hits.close, hits.note) == (None, "")
    assert search_store(store, SearchOptions(by="words"), text="unheard").close is False
    assert search_store(store, SearchOptions(by="words", collapse=0), text="words 7")[0].id == "07"
    program = f"""import sys, channelhash as ch, channelhash.search as s, channelhash.search.query as q
dir(ch)
store = s.open_filled_store({str(store.address)!r})
assert q.search_store(store, by='words', text='words 7')[0].id == '07'
assert 'torch' not in sys.modules"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_where_a_part_has_no_outputs_its_words_answer(store, model, monkeypatch):
    """As for an encoder of images alone."""
    row = model.outputs("text", ["blue"]).numpy()[0]
    # what is not wanted is no question
    for parts, outputs in (
        ([Part("words 7"), Part("red", -1.0)], [None, None]),
        ([Part("words 7"), Part(Path("x.png"), -1.0)], [None, row]),
    ):
        query = make_query(parts, outputs, model.n_bits)
        assert (len(query.code), query.words_coded) == (0, False)
        hits = answer(store, query)
        assert [hit.id for hit in hits] == store.search_words("words 7", 10).ids
        assert "codes are of images alone" in hits.note
        for options in (
            SearchOptions(by="text"),
            SearchOptions(modality="image"),
            SearchOptions(radius=3),
        ):
            check_refusal("codes are of images alone", answer, store, query, options)
    with monkeypatch.context() as without:
        without.setattr("channelhash.search.sqlite.words.WordIndex._is_supported", lambda _: False)
        codes = ch.CodeSet(["a"], {"image": np.zeros((1, 2), np.uint8)}, None, n_bits=12)
        with closing(open_codes(codes)) as wordless:
            check_refusal(
                "codes are of images alone",
                answer,
                wordless,
                make_query([Part("words 7")], [None], 12),
            )
    mixed = make_query([Part("words 7"), Part(Path("x.png"))], [None, row], model.n_bits)
    coded = replace(mixed, words_coded=True)
    assert found(answer(store, mixed)) == found(answer(store, coded))
    assert answer(store, mixed).note
    assert not answer(store, coded).note
    assert mixed.modality == "image"


def test_what_has_more_of_the_words_than_the_last_of_many_goes_first(monkeypatch):
    texts = ("dog", "black dog", "black dog", "dog", *["black"] * 30)
    codes = np.array([[0], [1], [1], *[[255]] * 31], np.uint8)
    ids = [f"{number:02}" for number in range(len(codes))]
    monkeypatch.setattr("channelhash.search.answer.DEPTH", 3)
    with closing(open_codes(ch.CodeSet(ids, {"image": codes}, None, 8, texts=texts))) as store:
        hits = answer(store, Query(codes[0], words="black dog"), SearchOptions(k=3))
    assert [hit.id for hit in hits] == ["01", "02", "00"]


PLAIN = st.text("abcäж-'’5.,", min_size=1, max_size=8).filter(lambda word: word[0] != "-")


@given(st.lists(PLAIN, min_size=1, max_size=9))
def test_a_sentence_without_marks_is_one_part_as_it_stands(words):
    assert parse_question("  ".join(words)) == [Part(" ".join(words), 1.0)]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a dog on a beach", [("a dog on a beach", 1)]),
        ("beach -people", [("beach", 1), ("people", -1)]),
        ('a "beach ball" at night', [("a at night", 1), ("beach ball", 1)]),
        ('"beach"^2.5 -"two dogs"^3', [("beach", 2.5), ("two dogs", -3)]),
        ("dog^2 beach", [("beach", 1), ("dog", 2)]),
        ("well-lit t-shirt", [("well-lit t-shirt", 1)]),
        ("sun - sea -- sand", [("sun - sea -- sand", 1)]),
        ("a 5\" pipe, rock'n'roll ^_^", [("a 5\" pipe, rock'n'roll ^_^", 1)]),
        ("“two dogs” cat", [("cat", 1), ("two dogs", 1)]),
        ("beach -5", [("beach", 1), ("5", -1)]),
        ("-", [("-", 1)]),
    ],
)
def test_quotes_weights_and_minuses_make_parts(text, parts):
    assert parse_question(text) == parts


def test_words_of_wanted_and_unwanted_parts_are_searched():
    parts = [
        *parse_question('beach "two dogs" -people -"beach ball"'),
        Part(object(), -1.0),
        Part(object()),
    ]
    query = make_query(parts, [None] * len(parts), 8)
    assert query.words == "beach two dogs"
    assert query.without == ("people", "beach ball")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ('a "dog', "a quote is opened and not closed"),
        ('beach -"two dogs', "a quote is opened and not closed"),
        ('beach ""', "a phrase in quotes is empty"),
        ('beach -" "', "a phrase in quotes is empty"),
        ("-people", "-people: says only what is not wanted"),
        ("dog^0", "a weight is above 0"),
        ("dog^100.5", "a weight is above 0"),
        (f"dog^{'9' * 400}", "a weight is above 0"),
        ("a " + "-b " * 32, "parts; at most 32"),
    ],
)
def test_texts_that_make_no_question_are_refused_in_one_line(text, says):
    check_refusal(says, parse_question, text)


def test_parts_that_leave_nothing_are_refused():
    check_refusal("only what is not wanted", module.check_parts, [Part(object(), -1)])
    check_refusal("cancel out", combine, np.array([[1.0, 2.0], [2.0, 4.0]]), [1.0, -1.0])


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        parts = parse_question(text)
    except InputError:
        return
    assert all(part.content.strip() and part.weight for part in parts)


@given(st.integers(1, 5), st.data())
def test_parts_are_added_with_unit_length_and_get_their_mean_length(n, data):
    rows = np.array(
        data.draw(
            st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=4), min_size=n, max_size=n)
        )
    )
    rows += np.where(np.abs(rows).sum(1, keepdims=True) < 1e-3, 1.0, 0.0)
    weights = [data.draw(st.floats(0.25, 4)) for _ in range(n)]
    literal = sum(
        weight * row / np.sqrt((row**2).sum()) for weight, row in zip(weights, rows, strict=True)
    )
    length = np.average(np.sqrt((rows**2).sum(1)), weights=np.abs(weights))
    if np.linalg.norm(literal) > 1e-3:
        literal *= length / np.linalg.norm(literal)
        np.testing.assert_allclose(combine(rows, weights), literal, atol=1e-4)


TODAY = date(2026, 11, 27)
PLACES = PlaceNames(("place", name) for name in ("Porto", "Nice"))


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    with ch.open_store(tmp_path_factory.mktemp("narrow") / "store", n_bits=8) as opened:
        taken = ["2019-07-14 10:20:30", "2019-08", "2018-07-01", "2020-01-01"]
        metadata = [
            {"taken": when, "place": "Porto" if n < 3 else "Nice"} for n, when in enumerate(taken)
        ]
        metadata.append(
            {
                "taken": "2019-07-02",
                "date": "2001-01-01",
                "text": "summer 2019",
                "country": "Portugal",
            }
        )
        opened.add([*"abcde"], np.arange(5, dtype=np.uint8)[:, None], metadata=metadata)
        yield opened


@pytest.mark.parametrize(
    ("question", "rest", "where", "ids"),
    [
        ("two dogs in Porto, summer 2019 -cats", "two dogs -cats", None, "ab"),
        ("photos from July 2019", "", None, "a"),
        ("in July", "", None, "ac"),
        ("not in Porto", "", None, "d"),
        ("dogs, not before 2019", "dogs", None, "abd"),
        ("no photos from July 2019 in Porto", "", None, "bc"),
        ("until July 2018", "", None, "ce"),
        ("dogs older than 2019", "dogs", None, "ce"),
        ("dogs in Porto or Berlin", "dogs in Porto or Berlin", None, "abcde"),
        ("a dog in the porto", "a dog in the porto", None, "abcde"),
        ("Porto 1984", "1984", None, "abc"),
        ("dogs in 2019", "dogs in 2019", "id = 'c'", "c"),
        ("dogs in 2001", "dogs", "id > 'a'", "e"),
        ("summer 2019 -cats", "summer 2019 -cats", None, "abcde"),
    ],
)
def test_what_narrows_leaves_the_question(dated, question, rest, where, ids):
    narrowed, where = module.narrow(dated, Question(question), where, TODAY)
    assert narrowed.text == rest
    assert dated.ids(where) == [*ids]


def test_places_are_read_again_where_the_store_has_changed_and_only_there(tmp_path, monkeypatch):
    def places(question):
        return [phrase.means for phrase in module.narrow(opened, Question(question))[0].phrases]

    with ch.open_store(tmp_path / "store", n_bits=8) as opened:
        opened.add(["a"], np.zeros((1, 1), np.uint8), metadata=[{"place": "Porto"}])
        assert places("in Porto") == ["Porto"]
        assert places("in Lyon") == []
        opened.add(["b"], np.zeros((1, 1), np.uint8), metadata=[{"place": "Lyon"}])
        assert places("in Lyon") == ["Lyon"]
        monkeypatch.setattr(type(opened), "value_counts", None)
        for question in ("a dog", "in Porto or Lyon", "dogs in 2019"):
            places(question)


WORDS = [
    *[
        "dogs",
        "in",
        "summer",
        "2019",
        "last",
        "Porto",
        ",",
        "-2018",
        '"',
        "2018^2",
        "may",
        "to",
        "ago",
        "à",
    ],
    "\0",
]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=9).map(" ".join))
def test_any_question_is_covered_and_what_stands_apart_is_left_alone(dated, question):
    phrases = find_phrases(question, TODAY, PLACES)
    narrowed, _ = module.narrow(dated, Question(question))
    plain = module.leave_plain(dated, Question(question))
    assert plain in (None, replace(narrowed, text=narrowed.text.strip()))
    rest = question
    for phrase in reversed(phrases):
        assert question[phrase.start :].startswith(phrase.words)
        rest = rest[: phrase.start] + rest[phrase.start + len(phrase.words) :]
    assert sorted(rest + "".join(phrase.words for phrase in phrases)) == sorted(question)
    for token in module._TOKEN.finditer(question.replace("“", '"').replace("”", '"')):
        if not token[4] or (
            token[4][0] != '"' and any(module._WORD.fullmatch(token[4]).group(1, 3))
        ):
            assert all(
                p.start + len(p.words) <= token.start() or p.start >= token.end() for p in phrases
            ), token
    assert narrowed.text.split() or not question.strip() or phrases


def test_searches_are_narrowed_and_what_is_left_is_compared(dated):
    found = search_store(dated, text="cats in July 2019", by="words")
    assert ([*found], [phrase.words for phrase in found.phrases]) == ([], ["in July 2019"])
    assert [hit.id for hit in search_store(dated, SearchOptions(k=2), text="Porto")] == ["b", "a"]
    assert [hit.id for hit in search_store(dated, text="in Porto", like="c")] == ["c", "a", "b"]
    check_refusal("leave it out", search_store, dated, SearchOptions(radius=3), text="in Porto")
