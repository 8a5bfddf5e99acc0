"""Reading hashtags as the protocol says."""

import pytest

from channelhash.text.hashtag_reader import TextReader
from small_runs import run_command, run_json

KNOWN = {"golden", "gate", "bridge", "sunset", "####", "d##", "blue", "sky", "zyxwv"}


@pytest.fixture
def reader(few_english_words):
    return TextReader(KNOWN.__contains__, more_words=["zyxwv", "####"])


def read(reader, text):
    return [(r.word, r.outcome, r.tokens) for r in reader.read(text)]


def test_a_command_shows_how_words_are_read(few_english_words, capsys):
    words = run_json(capsys, "data", "explain-text", "goldengate brigde 日本")["words"]
    assert [(word["outcome"], word["tokens"]) for word in words] == [
        ("split", ["golden", "gate"]),
        ("corrected", ["bridge"]),
        ("dropped", []),
    ]
    assert run_command("data", "explain-text", "brigde") == 0
    assert "corrected" in capsys.readouterr().out


def test_the_vocabularys_own_words_help_the_segmentation(reader, few_english_words):
    assert read(reader, "bluezyxwv") == [("bluezyxwv", "split", ("blue", "zyxwv"))]
    assert TextReader(KNOWN.__contains__).read("bluezyxwv")[0].tokens != ("blue", "zyxwv")


def test_what_is_unknown_is_dropped_and_counted(reader):
    readings = reader.read("sunset house 99 bluehouse ☀☀")
    assert [(r.outcome, r.unknown) for r in readings] == [
        ("kept", ()),
        ("dropped", ("house",)),
        ("dropped", ("##",)),
        ("split", ("house",)),
        ("dropped", ("☀☀",)),
    ]


def test_texts_are_cut_after_the_longest_length(reader):
    assert reader.tokens("sunset " * 200) == ["sunset"] * 128
    assert reader.tokens("skyblue skyblue", max_tokens=3) == ["sky", "blue", "sky"]
    assert reader.tokens("") == []


def test_words_are_kept_corrected_split_or_dropped(reader):
    assert read(reader, "Sunset 2007 #D80 skyblue brigde goldengate Sunset2007 bluesky") == [
        ("sunset", "kept", ("sunset",)),
        ("2007", "kept", ("####",)),
        ("d80", "kept", ("d##",)),
        ("skyblue", "split", ("sky", "blue")),
        ("brigde", "corrected", ("bridge",)),
        ("goldengate", "split", ("golden", "gate")),
        ("sunset2007", "split", ("sunset", "####")),  # digits are masked before
        ("bluesky", "dropped", ()),  # SymSpell reads "bluesy": the protocol's procedure, with its losses
    ]


@pytest.mark.parametrize(
    ("word", "outcome", "tokens", "unknown"),
    [
        ("ایران", "dropped", (), ("ایران",)),
        ("日本東京", "dropped", (), ("日本東京",)),
        ("санфранциско", "dropped", (), ("санфранциско",)),
        ("রিসেট", "dropped", (), ("রিসেট",)),
        ("sunset日本", "split", ("sunset",), ("日本",)),
        ("日本2007", "split", ("####",), ("日本",)),
        ("sky☀blue", "split", ("sky", "blue"), ("☀",)),
        ("brïdge", "corrected", ("bridge",), ()),
        ("bri\u0308dge", "corrected", ("bridge",), ()),
    ],
)
def test_other_scripts_are_dropped_and_never_become_english(reader, word, outcome, tokens, unknown):
    (reading,) = reader.read(word)
    assert (reading.outcome, reading.tokens, reading.unknown) == (outcome, tokens, unknown)


def test_a_vocabulary_of_another_script_is_used(few_english_words):
    russian = TextReader({"москва", "река", "sea"}.__contains__, more_words=["москва", "река", "sea"])
    assert read(russian, "москва масква sea") == [
        ("москва", "kept", ("москва",)),
        ("масква", "corrected", ("москва",)),
        ("sea", "kept", ("sea",)),
    ]
    assert not russian.read("цц")[0].tokens
