"""Words as token ids; word2vec files, byte for byte, and their cache; texts as rows of vectors."""

import json
import struct
import tracemalloc
import unicodedata
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from channelhash.models.photo import is_unread
from channelhash.text import word_vectors
from channelhash.text.word_vectors import WordVectors, _TextReader
from channelhash.text.words import Vocabulary, fold, split_words
from refusals import check_refusal, refusal
from small_runs import run_json, run_text

WORDS = ["Sea", "sea", "café", "##", "Sunset"]
VECTORS = np.arange(15, dtype=np.float32).reshape(5, 3) / 4


def write_binary(path, words=WORDS, vectors=VECTORS, newline=b"\n"):
    data = f"{len(words)} {vectors.shape[1]}\n".encode()
    for word, vector in zip(words, vectors, strict=True):
        data += word.encode() + b" " + struct.pack(f"<{len(vector)}f", *vector) + newline
    path.write_bytes(data)
    return path


def write_text(path, words=WORDS, vectors=VECTORS):
    lines = [f"{len(words)} {vectors.shape[1]}"]
    lines += [
        " ".join([word, *map(repr, map(float, vector))])
        for word, vector in zip(words, vectors, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("newline", [b"\n", b""])
def test_binary_and_text_files_give_the_same_vectors(tmp_path, newline):
    for path in (write_binary(tmp_path / "v.bin", newline=newline), write_text(tmp_path / "v.txt")):
        vectors = WordVectors.open(path, tmp_path / "cache")
        assert (len(vectors), vectors.vectors.dtype) == (4, np.float16)
        assert [vectors.word(row) for row in range(4)] == ["sea", "café", "##", "sunset"]
        # the earlier casing of sea wins
        np.testing.assert_array_equal(vectors.vectors, VECTORS[[0, 2, 3, 4]])
        assert [vectors.row(word) for word in ("sea", "café", "##", "sunset")] == [0, 1, 2, 3]
        assert vectors.row("Sea") is vectors.row("moon") is vectors.row("") is None


@settings(max_examples=25)
@given(
    st.lists(
        st.text(
            st.characters(exclude_characters=" \n\r", exclude_categories=("Cs", "Cc", "Z")),
            min_size=1,
        )
    )
)
def test_every_word_is_found_in_its_row(tmp_path_factory, words):
    words = list(dict.fromkeys(word.lower().lower() for word in words)) or ["x"]
    root = tmp_path_factory.mktemp("vectors")
    vectors = np.random.default_rng(0).normal(size=(len(words), 2)).astype(np.float32)
    opened = WordVectors.open(write_binary(root / "v.bin", words, vectors), root / "cache")
    for i, word in enumerate(words):
        np.testing.assert_array_equal(
            opened.vectors[opened.row(word)], vectors[i].astype(np.float16)
        )


def test_opening_a_cache_reads_samples_of_it_and_builds_no_dictionary(tmp_path, monkeypatch):
    count, width = 50_000, 200
    vectors = np.random.default_rng(0).normal(size=(count, width)).astype("<f4")
    entries = b"".join(f"Word{i} ".encode() + vector.tobytes() for i, vector in enumerate(vectors))
    (tmp_path / "v.bin").write_bytes(f"{count} {width}\n".encode() + entries)
    WordVectors.open(tmp_path / "v.bin", tmp_path / "cache")
    tracemalloc.start()
    monkeypatch.setattr("channelhash.text.word_vectors._build", None)  # it is not built twice
    opened = WordVectors.open(tmp_path / "v.bin", tmp_path / "cache")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1e6  # 50,000 words in a dictionary are more than 5 MB
    assert peak < vectors.nbytes / 2
    for row in (0, 12_345, count - 1):
        assert opened.row(f"word{row}") == row
        np.testing.assert_array_equal(opened.vectors[row], vectors[row].astype(np.float16))


def test_another_file_of_the_same_name_gets_a_cache_of_its_own(tmp_path):
    first = WordVectors.open(write_binary(tmp_path / "v.bin"), tmp_path / "cache")
    second = WordVectors.open(
        write_binary(tmp_path / "v.bin", vectors=VECTORS + 1), tmp_path / "cache"
    )
    assert first.hash != second.hash
    np.testing.assert_array_equal(second.vectors[0], VECTORS[0] + 1)


def test_an_interrupted_build_is_never_read(tmp_path):
    path = write_binary(tmp_path / "v.bin")
    with (
        patch.object(word_vectors, "sync", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        WordVectors.open(path, tmp_path / "cache")
    assert not any(
        entry.is_dir() and not entry.name.startswith(".")
        for entry in (tmp_path / "cache").iterdir()
    )
    assert len(WordVectors.open(path, tmp_path / "cache")) == 4
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_two_builds_at_the_same_time_do_not_disturb_each_other(tmp_path, monkeypatch):
    path, convert = write_binary(tmp_path / "v.bin"), word_vectors._convert
    others = []

    def build_too(*arguments):
        convert(*arguments)
        monkeypatch.setattr(word_vectors, "_convert", convert)
        others.append(WordVectors.open(path, tmp_path / "cache"))

    monkeypatch.setattr(word_vectors, "_convert", build_too)
    first = WordVectors.open(path, tmp_path / "cache")
    assert first.hash == others[0].hash
    np.testing.assert_array_equal(first.vectors, others[0].vectors)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    "name", ["hashes.npy", "rows.npy", "offsets.npy", "vectors.bin", "words.bin", "meta.json"]
)
def test_a_cache_whose_pages_were_lost_or_of_another_source_is_not_read(tmp_path, name):
    path = write_binary(tmp_path / "v.bin")
    WordVectors.open(path, tmp_path / "cache")
    lost = next((tmp_path / "cache").iterdir()) / name
    if name == "meta.json":
        lost.write_text(json.dumps(json.loads(lost.read_text()) | {"source": "another"}))
    else:
        keep = 0 if name.endswith(".bin") else 128  # the header of a .npy file
        lost.write_bytes(lost.read_bytes()[:keep] + bytes(lost.stat().st_size - keep))
    check_refusal(
        "damaged cache of word vectors .* remove it", WordVectors.open, path, tmp_path / "cache"
    )


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("v.bin", b"", "no such file of word vectors"),
        ("v.bin", b"not a header\n", "does not begin with the number of words and of dimensions"),
        (
            "v.bin",
            b"2 3\nsea " + struct.pack("<3f", 1, 2, 3) + b"\nsky " + b"\0" * 5,
            "ends in word 2 of 2",
        ),
        ("v.bin", b"9999999 300\nsea " + struct.pack("<3f", 1, 2, 3), "ends in word 1 of 9999999"),
        (
            "v.bin",
            b"1 2\nsea " + struct.pack("<2f", 1, 2) + b"\nsky " + struct.pack("<2f", 1, 2),
            "goes on after 1",
        ),
        (
            "v.bin",
            b"2 2\n"
            + b"sea "
            + struct.pack("<3f", 1, 2, 3)
            + b"sky "
            + struct.pack("<3f", 1, 2, 3),
            "goes on",
        ),
        ("v.bin", b"2 2\nsea " + struct.pack("<2f", 1, 2) + b"x" * 20_000, "word 2 has no end"),
        (
            "v.bin",
            b"1 2\nsea " + struct.pack("<2f", 1, float("nan")),
            "word 1 ('sea') has a number that is not finite",
        ),
        ("v.bin.gz", b"\x1f\x8b\x08\x00", "is compressed; unpack it first"),
        (
            "v.txt",
            b"1 2\nsea 70000 2\n",
            "word 1 ('sea') has a number that is not finite as float16",
        ),
        ("v.txt", b"1 2\nsea 1 2\nsky 1 2\n", "line 3: the header says 1 words, here is another"),
        ("v.txt", b"2 2\nsea 1 2\nsky 1\n", "line 3: 1 numbers, the header says 2"),
        ("v.txt", b"2 2\nsea 1 2\nsky 1 x\n", "line 3: not 2 numbers after the word"),
        (
            "v.txt",
            b"3 2\nsea 1 2\nsky 1 2\n",
            "has 2 words, the header says 3; the file is truncated",
        ),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, name, content, says):
    if content:
        (tmp_path / name).write_bytes(content)
    message = refusal(WordVectors.open, tmp_path / name, tmp_path / "cache")
    assert str(tmp_path / name) in message
    assert says in message
    assert not [*(tmp_path / "cache").glob("[!.]*")]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    root, words = tmp_path_factory.mktemp("vectors"), ["Sunset", "####", "golden", "gate", "zyxwv"]
    file = write_binary(
        root / "v.bin", words, np.repeat(np.arange(5, dtype=np.float32)[:, None], 2, axis=1)
    )
    return WordVectors.open(file, root / "cache")


@pytest.mark.usefixtures("few_english_words")
def test_a_token_is_the_row_of_its_vector_plus_one(vectors):
    ids = vectors.encode(["#SUNSET qqqq 2007 goldengate", "", "sunset " * 9], vectors.reader(), 6)
    assert (ids.tolist(), ids.dtype) == ([[1, 2, 3, 4, 0, 0], [0] * 6, [1] * 6], np.int32)
    assert vectors.vectors[ids[0, :4] - 1, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.usefixtures("few_english_words")
def test_only_the_most_frequent_words_help_the_segmentation(vectors):
    assert vectors.reader().tokens("goldenzyxwv") == ["golden", "zyxwv"]
    assert vectors.reader(segmentation_words=4).tokens("goldenzyxwv") != ["golden", "zyxwv"]


@pytest.mark.usefixtures("few_english_words")
def test_ids_are_cached_by_vocabulary_and_reading(vectors, tmp_path, monkeypatch):
    texts = ["sunset 2007", "goldengate", "nothing"] * 5
    monkeypatch.setattr(word_vectors, "_CHUNK", 4)
    first = vectors.encode_cached(texts, tmp_path, max_tokens=4)
    np.testing.assert_array_equal(first, vectors.encode(texts, vectors.reader(), 4))
    assert vectors.encode_cached(texts, tmp_path, max_tokens=3).shape == (15, 3)
    vectors.encode_cached(texts, tmp_path, segmentation_words=0, max_tokens=4)
    assert len(list(tmp_path.glob("*.npy"))) == 3
    np.testing.assert_array_equal(
        vectors.encode_cached(texts[::-1], tmp_path, max_tokens=4), first[::-1]
    )
    monkeypatch.setattr(word_vectors, "_speller", None)  # a cache that is there needs no speller
    assert isinstance(vectors.encode_cached(texts, tmp_path, max_tokens=4), np.memmap)
    assert vectors.encode_cached([], tmp_path, max_tokens=4).shape == (0, 4)
    np.save(first.filename, first[::-1].copy())  # rows in another order
    says = r"tokens-.*\.npy: block 0 is damaged; remove the file"
    check_refusal(says, vectors.encode_cached, texts, tmp_path, max_tokens=4)


@pytest.fixture
def reader(few_english_words):
    known = {"golden", "gate", "bridge", "sunset", "####", "d##", "blue", "sky", "zyxwv"}
    return _TextReader(known.__contains__, more_words=["zyxwv", "####"])


def test_a_command_shows_how_words_are_read(few_english_words, capsys):
    words = run_json(capsys, "data", "explain-text", "goldengate brigde 日本")["words"]
    found = [(word["outcome"], word["tokens"]) for word in words]
    assert found == [("split", ["golden", "gate"]), ("corrected", ["bridge"]), ("dropped", [])]
    assert "corrected" in run_text(capsys, "data", "explain-text", "brigde")


def test_texts_are_cut_after_the_longest_length(reader):
    assert reader.tokens("sunset " * 200) == ["sunset"] * 128
    assert reader.tokens("skyblue skyblue", max_tokens=3) == ["sky", "blue", "sky"]
    assert reader.tokens("") == []


@pytest.mark.parametrize(
    ("word", "outcome", "tokens", "unknown"),
    [
        ("Sunset", "kept", ("sunset",), ()),
        ("2007", "kept", ("####",), ()),
        ("#D80", "kept", ("d##",), ()),
        ("skyblue", "split", ("sky", "blue"), ()),
        ("brigde", "corrected", ("bridge",), ()),
        ("Sunset2007", "split", ("sunset", "####"), ()),  # digits are masked before
        (
            "bluesky",
            "dropped",
            (),
            ("blues", "y"),
        ),  # as SymSpell splits it: the protocol's procedure, with its losses
        *(
            (word, "dropped", (), (word,))
            for word in ("house", "☀☀", "ایران", "日本東京", "санфранциско", "রিসেট")
        ),
        ("99", "dropped", (), ("##",)),
        ("bluehouse", "split", ("blue",), ("house",)),
        ("sunset日本", "split", ("sunset",), ("日本",)),
        ("日本2007", "split", ("####",), ("日本",)),
        ("sky☀blue", "split", ("sky", "blue"), ("☀",)),
        *((word, "corrected", ("bridge",), ()) for word in ("brïdge", "bri\u0308dge")),
    ],
)
def test_words_are_kept_corrected_split_or_dropped(reader, word, outcome, tokens, unknown):
    (reading,) = reader.read(word)
    assert [reading.word] == split_words(word)
    assert (reading.outcome, reading.tokens, reading.unknown) == (outcome, tokens, unknown)


def test_a_vocabulary_of_another_script_is_used(few_english_words):
    russian = _TextReader(
        {"москва", "река", "sea"}.__contains__, more_words=["москва", "река", "sea"]
    )
    readings = [
        (reading.outcome, reading.tokens) for reading in russian.read("москва масква sea цц")
    ]
    assert readings == [
        ("kept", ("москва",)),
        ("corrected", ("москва",)),
        ("kept", ("sea",)),
        ("dropped", ()),
    ]


def test_words_are_lower_case_and_stripped():
    assert split_words('  #BlueSky, "Two  dogs".\tCafé\'s (late) … #') == [
        "bluesky",
        "two",
        "dogs",
        "café's",
        "late",
    ]


def test_a_vocabulary_keeps_frequent_words_in_a_stated_order():
    texts = ["sea sky sea", "sky dog", "sea cat dog"]
    assert Vocabulary.from_texts(texts, min_count=2).words == ("sea", "dog", "sky")
    ids = Vocabulary(("sea", "dog", "sky")).encode(["dog unknown sea", ""], 4)
    assert ids.tolist() == [[2, 1, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("σκύλος στην παραλία", True),
        ("कुत्ता", True),
        ("כלב", True),
        ("a σκύλος with a cat", False),
        ("собака", False),
        ("สุนัข", False),
        ("犬", False),
        ("ビーチ", False),
        ("개", False),
        ("كلب", False),
        ("2019", False),
    ],
)
def test_scripts_that_nobody_reads(text, expected):
    assert is_unread(text) is expected


SAME = {
    "Latin": "Café CAFE\u0301 cafe ｃａｆé|Łódź lodz ŁÓDŹ|Ærø aero|Đà da|Þór thor|ﬁn fin|ƙasa kasa",
    "German": "Straße STRASSE STRAẞE strasse|Müller muller",
    "Turkish": "İstanbul Istanbul ıstanbul istanbul",
    "Greek": "Οδυσσεύς ΟΔΥΣΣΕΎΣ οδυσσευσ|ἄνθρωπος ανθρωπος|μαΐου μαιου|φῶς φως",
    "Cyrillic": "ёлка ЕЛКА елка|за\u0301мок замок|чай чаи\u0306 ЧАЙ|п’ять п'ять пʼять",
    "Hebrew": "שָׁלוֹם שלום|כֹּל כל",
    "Arabic": "كِتَاب كتاب كتـــاب ﻛﺘﺎﺏ|أحمد احمد|إلى الي|مدرسة مدرسه|رحمٰن رحمن|٢٠١٩ 2019 ۲۰۱۹",
    "Persian": "کتاب كتاب|ایران ايران|می\u200cخواهم میخواهم|خانۀ خانه",
    "Syriac": "ܫܠܵܡܵܐ ܫܠܡܐ",
    "Hindi": "फ़िल्म फिल्म|हँसी हंसी|२०१९ 2019",
    "Bengali": "কোন ক\u09c7\u09beন|উৎসব উত\u09cd\u200dসব",
    "Malayalam": "അവൻ അവന\u0d4d\u200d",
    "Thai": "น้ำ น\u0e49\u0e4d\u0e32|๒๕๖๒ 2562",
    "Japanese": "ﾃﾚﾋﾞ テレビ テレヒ\u3099|２０１９ 2019",
    "Korean": "고양이 \u1100\u1169\u110b\u1163\u11bc\u110b\u1175",
    "unseen": "foot\u00adball foot\u2060ball foot\u200bball \ufefffootball foot\u200dball\u200e football|"
    "cafe\u00ad\u0301 café|\u0456\u200b\u0308жак їжак",
}
DIFFERENT = {
    "Latin": "Müller Mueller|cat cut",
    "Cyrillic": "май маи|її іі|ў у|бойко боико",
    "Arabic": "سؤال سوال|کتاب کباب|لڑکے لڑکی",
    "Hindi": "की का|दिन दीन|कल कुल",
    "Bengali": "কল কাল|বাড়ি বাডি",
    "Tamil": "கல் கால்",
    "Thai": "มา ม้า|หมา หม",
    "Khmer": "កា គា|កា កិ",
    "Burmese": "မာ မ",
    "Maldivian": "ބަސް ބިސް",
    "Japanese": "か が|ハ パ|は ハ",
    "Korean": "각 가",
}


def spellings(table):
    return [
        pytest.param(group.split(), id=f"{script}-{number}")
        for script, groups in table.items()
        for number, group in enumerate(groups.split("|"))
    ]


@pytest.mark.parametrize("words", spellings(SAME))
def test_spellings_of_one_word_have_one_form(words):
    forms = ("NFC", "NFD", "NFKC", "NFKD")
    every = [unicodedata.normalize(form, word) for word in words for form in forms]
    assert len({fold(spelling) for word in every for spelling in (word, word.upper())}) == 1


@pytest.mark.parametrize("words", spellings(DIFFERENT))
def test_letters_that_tell_words_apart_stay_apart(words):
    assert len({fold(word) for word in words}) == len(words)


@settings(max_examples=300)
@given(st.text(max_size=12))
def test_to_fold_twice_is_to_fold_once_whatever_the_form_of_a_text(text):
    folded = fold(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert fold(unicodedata.normalize(form, text)) == folded
    assert fold(folded) == fold(text.lower()) == folded
