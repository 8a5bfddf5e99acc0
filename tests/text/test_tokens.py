"""Words as token ids."""

from channelhash.text.tokens import Vocabulary, split_words


def test_words_are_lower_case_and_stripped():
    assert split_words('  #BlueSky, "Two  dogs".\tCafé\'s (late) … #') == ["bluesky", "two", "dogs", "café's", "late"]


def test_a_vocabulary_keeps_frequent_words_in_a_stated_order():
    texts = ["sea sky sea", "sky dog", "sea cat dog"]
    assert Vocabulary.from_texts(texts, min_count=2).words == ("sea", "dog", "sky")
    ids = Vocabulary(("sea", "dog", "sky")).encode(["dog unknown sea", ""], 4)
    assert ids.tolist() == [[2, 1, 0, 0], [0, 0, 0, 0]]
