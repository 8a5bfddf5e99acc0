"""The index of words: what is found, in what order, and that it follows the items."""

import math
import unicodedata
from contextlib import closing
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.search.sqlite.damaging import change

import channelhash as ch
from channelhash.search.sqlite import words as word_index
from channelhash.search.sqlite.check import check_store, repair_store
from refusals import check_refusal

VOCABULARY = ["dog", "beach", "two", "surfboard", "café", "man"]


def add(store, texts, start=0):
    ids = [f"{start + n:03}" for n in range(len(texts))]
    store.upsert(
        ids, np.zeros((len(ids), 1), np.uint8), "image", [{"text": text} for text in texts]
    )


def check_found(store, texts, question, k, coverage=0.0, most=1.0):
    """Compare what a question finds with scoring every text literally.

    Words that more than ``most`` of the texts have do not count beside rarer ones.
    """
    words = {
        word: sum(word in text.split() for text in texts)
        for word in dict.fromkeys(question.split())
    }
    rarest = min(filter(None, words.values()), default=0)
    weights = {
        word: math.log(1 + len(texts) / count)
        for word, count in words.items()
        if 0 < count <= max(rarest, most * len(texts))
    }
    scores = [
        sum(weight for word, weight in weights.items() if word in text.split()) for text in texts
    ]
    least = coverage * sum(math.log(1 + len(texts) / max(count, 1)) for count in words.values())
    enough = [n for n, score in enumerate(scores) if score and score >= least - 1e-9]
    order = sorted(enough, key=lambda n: (-round(scores[n], 9), n))
    found = store.search_words(question, k, coverage=coverage)
    assert found.ids == [f"{n:03}" for n in order][:k]
    assert found.keys == pytest.approx([scores[n] for n in order][:k])


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=4), min_size=1, max_size=20), st.data()
)
def test_items_come_by_the_weight_of_their_words(tmp_path_factory, texts, data):
    texts = [" ".join(words) for words in texts]
    question = " ".join(data.draw(st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=5)))
    k, coverage = data.draw(st.integers(1, 25)), data.draw(st.sampled_from([0, 0.3, 0.5, 1]))
    with ch.open_store(tmp_path_factory.mktemp("stores") / "store", n_bits=8) as store:
        add(store, texts)
        check_found(store, texts, question, k, coverage)


@settings(max_examples=25)
@given(st.integers(0, 3), st.lists(st.integers(0, 20), min_size=3, max_size=3), st.data())
def test_words_of_a_tenth_of_many_items_count_only_where_none_is_rarer(
    tmp_path_factory, above, counts, data
):
    """The first n items have a word; 20 + ``above`` items are many if they are more than 20."""
    n_items = 20 + above
    words = dict(zip(VOCABULARY, counts, strict=False))
    texts = [
        " ".join(word for word, count in words.items() if place < count) for place in range(n_items)
    ]
    question = " ".join(data.draw(st.permutations(list(words))))
    with (
        pytest.MonkeyPatch.context() as patch,
        ch.open_store(tmp_path_factory.mktemp("stores") / "store", n_bits=8) as store,
    ):
        patch.setattr(word_index, "_MANY", 20)
        add(store, texts)
        check_found(store, texts, question, k=25, most=0.1 if above else 1.0)


def test_how_many_items_have_a_word_is_known_anew_after_each_write(tmp_path):
    store, other = (ch.open_store(tmp_path / "store", n_bits=8) for _ in range(2))
    texts: list[str] = []
    for writer, more in ((store, ["dog", "man"]), (other, ["dog", "two dog"]), (store, ["two"])):
        add(writer, more, start=len(texts))
        texts += more
        for reader in (store, other):
            check_found(reader, texts, "dog two", 9)
    store.close()
    other.close()


def test_frequent_words_are_found_with_rare_ones_and_without(tmp_path, monkeypatch):
    monkeypatch.setattr(word_index, "_ROWS", 5)
    with ch.open_store(tmp_path / "store", n_bits=8) as store:
        texts = ["dog beach"] * 9 + ["dog"] * 9 + ["beach man"] * 9 + ["kite dog beach", "kite"]
        add(store, texts)
        assert store.search_words("dog beach kite", 99).ids[:2] == ["027", "028"]
        assert store.search_words("dog beach", 12).ids == [
            *(f"{n:03}" for n in range(9)),
            "027",
            "018",
            "019",
        ]
        # with the rarer two
        assert store.search_words("man beach dog", 9).ids == [f"{n:03}" for n in range(18, 27)]
        assert len(store.search_words("man beach dog", 99).ids) == 28


def test_names_labels_and_dates_are_words_and_filters_and_phrases_cut(tmp_path):
    with ch.open_store(tmp_path / "store", n_bits=8) as store:
        metadata = [
            {
                "text": "Ein Café",
                "labels": ["traffic light", "dog"],
                "image": "/home/a/IMG_1.jpg",
                "year": 1,
            },
            {"text": "a beach ball", "taken": "2019-07-14T10:00:00", "year": 2},
            {"text": "a ball on a beach, and people", "year": 3},
        ]
        store.add(["2020/rome.jpg", "b", "c"], np.zeros((3, 1), np.uint8), metadata=metadata)
        decomposed = unicodedata.normalize("NFD", "café")
        for ids, questions in {
            ("2020/rome.jpg",): ("cafe", "CAFÉ", decomposed, "rome 2020", "traffic", "img"),
            ("b",): ("july", "2019"),
            ("b", "c"): ('beach" OR text : *',),
            (): ("home", "nowhere", "?!"),
        }.items():
            for words in questions:
                assert store.search_words(words).ids == [*ids], words
        assert store.search_words("beach", where="year > 2").ids == ["c"]
        assert store.search_words("beach", without=["people"]).ids == ["b"]
        assert store.search_words("beach", without=["beach people", "rome"]).ids == ["b"]
        assert store.search_words("beach", without=["...", "rome beach"]).ids == ["b", "c"]
        check_refusal("k is 0", store.search_words, "beach", 0)


UNSPACED = {
    "ja": "黒い猫が庭で寝ている、今日。本とﾃﾚﾋﾞ",
    "zh": "一只黑狗在花园里睡觉 2019年 iPhone照片 𠮷野家",
    "th": "แมวดำนอนในบ้าน ข่าว",
    "lo": "ແມວດຳນອນຢູ່",
    "km": "ឆ្មាខ្មៅ\u200bកំពុងដេក",
    "my": "ကြောင်မည်းအိပ်နေသည်",
    "ko": "검은 길고양이가 정원에서 잔다",
    "hi": "काली बिल्ली सो रही है",
    "en": "a black cat, and a category",
}


@pytest.mark.parametrize(
    ("found", "queries"),
    [
        ("ja", ["猫", "黒い猫", "テレビ", "ﾃﾚﾋﾞ", "今日"]),
        ("zh", ["黑狗", "花园", "2019", "照片", "iphone", "𠮷野家"]),
        ("th", ["แมว", "แมวดำ", "ข่าว"]),
        ("lo", ["ແມວ"]),
        ("km", ["ឆ្មា", "ខ្មៅកំពុង"]),
        ("my", ["ကြောင်"]),
        ("ko", ["고양이", "길고양이가", unicodedata.normalize("NFD", "고양이"), "정원"]),
        ("hi", ["बिल्ली"]),
        ("en", ["cat", "black", "犬 cat"]),
        ("ja zh", ["黑狗 猫"]),
        (
            "",
            [
                "日本",
                "猫黒",
                "鳥",
                "狗黑",
                "吉野家",
                "ขาว",
                "หมา",
                "ໝາ",
                "ឆ្កែ",
                "ခွေး",
                "양고",
                "बिल्",
                "ब",
                "at",
            ],
        ),
    ],
)
def test_words_are_found_in_scripts_without_spaces(unspaced_store, found, queries):
    for query in queries:
        assert sorted(unspaced_store.search_words(query).ids) == found.split(), query
        left = unspaced_store.search_words("cat 猫", without=[query]).ids
        assert sorted(left) == sorted(
            {"en", "ja"} - set(found.split() if " " not in query else [])
        ), query


@pytest.fixture(scope="module")
def unspaced_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("stores") / "store"
    with closing(ch.open_store(path, n_bits=8)) as store:
        metadata = [{"text": text} for text in UNSPACED.values()]
        store.add(list(UNSPACED), np.zeros((len(UNSPACED), 1), np.uint8), metadata=metadata)
        store.add(["gone"], np.zeros((1, 1), np.uint8), metadata=metadata[:1])
        store.delete(["gone"])
    assert check_store(path) == []
    with closing(ch.open_store(path)) as store:
        yield store


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("harper", "a"),
        ("stop harper", "a b"),
        ("topharp", "a"),
        ("arp", "a"),
        ("hat", "d c"),
        ("ha", ""),
        ("that", "c"),
        ("1750", "b"),
        ("175", "b"),
        ("cafe", "b"),
        ("有猫在家", "b"),
        ("猫", "b"),
        ("harp 1750", "b a"),
        ("parper", ""),
    ],
)
def test_parts_of_what_was_read_are_found_and_change_with_it(tmp_path, query, found):
    read = {
        "a": "STOPHARPER",
        "b": "Stop\nCAFÉ 17.50\n家里有猫在家里",
        "c": "THATCHER\nthat",
        "d": "",
        "harp": "x",
    }
    with closing(ch.open_store(tmp_path / "store", n_bits=8)) as store:
        metadata = [
            {"ocr": text, "text": "a hat" if name == "d" else "so what"}
            for name, text in read.items()
        ]
        store.add(
            list(read), np.zeros((5, 1), np.uint8), metadata=[{"ocr": "old harper 1750 hat"}] * 5
        )
        store.upsert(list(read), np.zeros((5, 1), np.uint8), metadata=metadata)
        store.delete(["harp"])
        # too little to count beside codes
        half = ("arp a", "hat c", "stop harper b", "harp 1750 a", "harp 1750 b")
        assert store.search_words(query).ids == found.split()
        assert store.search_words(query, where="id <> 'b'").ids == [
            name for name in found.split() if name != "b"
        ]
        assert store.search_words(query, without=["topharper", "hatch"]).ids == [
            n for n in found.split() if n in "bd"
        ]
        assert store.search_words(query, coverage=0.7).ids == [
            n for n in found.split() if f"{query} {n}" not in half
        ]
    assert check_store(tmp_path / "store") == []


def vowelled(word, data):
    """Write signs that people leave out into an Arabic word."""
    signs = data.draw(st.lists(st.sampled_from(["", "\u064e", "\u0650", "\u0651", "\u0640"])))
    return "".join(map("".join, zip_longest(word, signs[: len(word)], fillvalue="")))


def hyphenated(word, data):
    place = data.draw(st.integers(0, len(word)))
    return (
        word[:place] + data.draw(st.sampled_from("\u00ad\u200b\u2060\ufeff\u200e")) + word[place:]
    )


SPELT = [
    *(lambda word, _, form=form: unicodedata.normalize(form, word) for form in ("NFD", "NFKC")),
    lambda word, _: word.upper(),
    lambda word, _: word.title(),
    lambda word, data: vowelled(word, data) if "\u0620" < word[0] < "\u0650" else word,
    hyphenated,
]
OF_SCRIPTS = [
    "Straße", "Łódź", "Ærø", "İzmir", "café", "Οδυσσεύς", "άγιος", "ёлка", "чай",
    "їжак", "שָׁלוֹם", "كتاب", "أحمد", "مدرسة", "کتاب", "बिल्ली", "हिन्दी", "বাড়ি",
    "মালয়ালম", "അവൻ", "தமிழ்", "ગુજરાતી", "සිංහල", "བོད་", "ދިވެހި", "ქართული", "հայերեն",
    "ትግርኛ", "ᠮᠣᠩᠭᠣᠯ", "ꦗꦮ", "𞤆𞤵𞤤𞤢𞤪", "ᏣᎳᎩ", "ߒߞߏ", "2019", "２０１９", "٢٠١٩",
]  # fmt: skip


@settings(max_examples=25)
@given(st.data())
def test_a_text_is_found_by_each_of_its_words_however_they_are_spelt(tmp_path_factory, data):
    words = data.draw(st.lists(st.sampled_from(OF_SCRIPTS), min_size=1, max_size=4))

    def spelt(word):
        for respell in data.draw(st.lists(st.sampled_from(SPELT), max_size=3)):
            word = respell(word, data)
        return word

    text = " ".join(map(spelt, words))
    with ch.open_store(tmp_path_factory.mktemp("stores") / "store", n_bits=8) as store:
        metadata = [{"text": text}, {"labels": [text, "x"]}, {"ocr": text}, {"text": "k i a l 1"}]
        store.add(list("abcd"), np.zeros((4, 1), np.uint8), metadata=metadata)
        for word in words:
            asked = spelt(word)
            assert sorted(store.search_words(asked).ids) == ["a", "b", "c"], (asked, text)
            assert store.search_words("k", without=[asked]).ids == ["d"]
            assert store.search_words(asked, without=[spelt(word)]).ids == []


@pytest.mark.parametrize(
    "gap", ["\n", "\r\n", "\t", "\u00a0", "\u2028", "\u2029", "\x0b", "\x85", "\u3000"]
)
def test_words_of_a_label_are_apart_whatever_parts_them(tmp_path, gap):
    with ch.open_store(tmp_path / "store", n_bits=8) as store:
        label = f"traffic{gap}light"
        metadata = [{"labels": [label]}, {"text": label}]
        store.add(["a", "b"], np.zeros((2, 1), np.uint8), metadata=metadata)
        for word in ("traffic", "light", label):
            assert store.search_words(word).ids == ["a", "b"]


@given(st.text(max_size=40))
@settings(max_examples=60)
def test_any_text_can_be_asked_for(unspaced_store, text):
    unspaced_store.search_words(text, 3)
    unspaced_store.search_words("cat", 3, without=[text])


def test_every_letter_is_split_as_the_index_splits_it(tmp_path):
    store = ch.open_store(tmp_path / "store", n_bits=8)
    letters = [
        chr(n)
        for n in (*range(1, 0x300), *range(0x300, 0x20000, 211))
        if unicodedata.category(chr(n)) != "Cs"
    ]
    add(store, [f"{n}x{letter}y" for n, letter in enumerate(letters)])
    lost = [
        letter
        for n, letter in enumerate(letters)
        if store.search_words(f"{n}x{letter}y", 1).ids != [f"{n:03}"]
    ]
    assert lost == []
    store.close()


def test_the_index_follows_changes_and_is_checked_and_repaired(tmp_path):
    store = ch.open_store(tmp_path / "store", n_bits=8)
    add(store, ["a dog", "a cat", "a bird"])
    add(store, ["a kite"])
    store.delete(["001"])
    assert [store.search_words(word).ids for word in ("dog", "kite", "cat", "bird")] == [
        [],
        ["000"],
        [],
        ["002"],
    ]
    whale = [{"text": "whale"}, {}]
    check_refusal(
        "'000' has a code", store.add, ["new", "000"], np.zeros((2, 1), np.uint8), metadata=whale
    )
    assert store.search_words("whale").ids == []
    store.close()
    assert check_store(tmp_path / "store") == []
    change(tmp_path / "store", "INSERT INTO words (rowid, text) VALUES (1, 'whale')")
    check_refusal("index of words does not agree", ch.open_store, tmp_path / "store", n_bits=8)
    assert any("index of words" in finding.what for finding in check_store(tmp_path / "store"))
    assert repair_store(tmp_path / "store").lost == []
    with ch.open_store(tmp_path / "store", n_bits=8) as repaired:
        assert [repaired.search_words(word).ids for word in ("whale", "kite")] == [[], ["000"]]


def test_a_store_without_words_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("channelhash.search.sqlite.words.WordIndex._is_supported", lambda _: False)
    with ch.open_store(tmp_path / "store", n_bits=8) as store:
        add(store, ["a dog"])
        assert not store.has_words
        check_refusal("has no index of words", store.search_words, "dog")
