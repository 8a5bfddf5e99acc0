"""Token caches: built once, in chunks that survive an interruption, never of another vocabulary."""

import numpy as np
import pytest

from channelhash.errors import InputError
from channelhash.text import token_cache
from channelhash.text import tokens as change
from channelhash.text.token_cache import cached_tokens
from channelhash.text.tokens import encode_hashed

TEXTS = [f"word{i} word{i % 7}" for i in range(50)]


class Encoder:
    def __init__(self, n_buckets: int = 100) -> None:
        self.n_buckets, self.calls = n_buckets, 0

    def __call__(self, texts):
        self.calls += 1
        return encode_hashed(list(texts), self.n_buckets, 4)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(token_cache, "_CHUNK", 8)


def test_a_cache_is_built_once_and_mapped(tmp_path):
    encode = Encoder()
    tokens = cached_tokens(TEXTS, encode, "v1", tmp_path)
    np.testing.assert_array_equal(tokens, encode_hashed(TEXTS, 100, 4))
    calls = encode.calls
    again = cached_tokens(TEXTS, encode, "v1", tmp_path)
    assert encode.calls == calls
    assert isinstance(again, np.memmap)
    assert len(list(tmp_path.iterdir())) == 2


def test_an_interrupted_build_goes_on_where_it_was(tmp_path):
    def stop(done, total):
        if done == 24:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_tokens(TEXTS, Encoder(), "v1", tmp_path, stop)
    encode = Encoder()
    tokens = cached_tokens(TEXTS, encode, "v1", tmp_path)
    assert encode.calls == 4  # 7 chunks, 3 of them were there
    np.testing.assert_array_equal(tokens, encode_hashed(TEXTS, 100, 4))


def test_other_texts_and_other_vocabularies_get_caches_of_their_own(tmp_path):
    first = cached_tokens(TEXTS, Encoder(100), "v1", tmp_path)
    second = cached_tokens(TEXTS, Encoder(10), "v2", tmp_path)
    third = cached_tokens(TEXTS[::-1], Encoder(100), "v1", tmp_path)
    assert first.max() > 10 >= second.max()
    np.testing.assert_array_equal(third, first[::-1])
    assert cached_tokens([], Encoder(), "v1", tmp_path).shape == (0, 4)
    assert len(cached_tokens(["a", "b"], Encoder(), "v1", tmp_path)) == 2
    assert len(cached_tokens(["a\x1eb"], Encoder(), "v1", tmp_path)) == 1


def test_chunks_of_another_size_are_not_mixed(tmp_path, monkeypatch):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached_tokens(TEXTS, Encoder(), "v1", tmp_path, stop)
    monkeypatch.setattr(token_cache, "_CHUNK", 16)
    np.testing.assert_array_equal(cached_tokens(TEXTS, Encoder(), "v1", tmp_path), encode_hashed(TEXTS, 100, 4))


def test_rows_in_another_order_are_damage(tmp_path):
    tokens = np.array(cached_tokens(TEXTS, Encoder(), "v1", tmp_path))
    np.save(next(tmp_path.glob("*.npy")), tokens[::-1].copy())
    with pytest.raises(InputError, match="damaged token cache"):
        cached_tokens(TEXTS, Encoder(), "v1", tmp_path)


@pytest.mark.parametrize("damage", [lambda data: data[:-8], lambda data: data[:-1] + b"\x07", lambda data: b""])
def test_a_damaged_cache_is_named_not_used(tmp_path, damage):
    cached_tokens(TEXTS, Encoder(), "v1", tmp_path)
    path = next(tmp_path.glob("*.npy"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match="damaged token cache"):
        cached_tokens(TEXTS, Encoder(), "v1", tmp_path)


TOKENS = np.zeros((300, 10), np.int32)
TOKENS[:, :6] = np.arange(1, 7)
ALL = list(range(300))


def test_masking_and_replacing_hit_their_share_of_real_tokens():
    masked = change.mask_tokens(TOKENS, ALL, 0, 3, 0.25, mask_token=99)
    assert not masked[:, 6:].any()
    assert (masked[:, :6] == 99).mean() == pytest.approx(0.25, abs=0.04)
    assert ((masked == TOKENS) | (masked == 99)).all()
    known = np.array([7, 500, 900], np.int32)
    replaced = change.replace_tokens(TOKENS, ALL, 0, 3, 0.5, known)
    assert not replaced[:, 6:].any()
    assert (replaced[:, :6] != TOKENS[:, :6]).mean() == pytest.approx(0.5, abs=0.05)
    drawn = replaced[replaced != TOKENS]
    assert {value: (drawn == value).mean() for value in known} == pytest.approx(dict.fromkeys(known, 1 / 3), abs=0.07)


def test_dropping_keeps_order_and_at_least_one_token():
    dropped = change.drop_tokens(TOKENS, ALL, 0, 3, 0.4)
    for row in dropped:
        real = row[row != 0]
        assert len(real) >= 1
        assert list(real) == sorted(real)
        assert not row[len(real) :].any()
    assert (dropped != 0).sum() / 1800 == pytest.approx(0.6, abs=0.05)
    assert (change.drop_tokens(TOKENS, ALL, 0, 3, 1.0) != 0).sum(axis=1).tolist() == [1] * 300


@pytest.mark.parametrize(
    "draw",
    [
        lambda rows, epoch: change.mask_tokens(TOKENS[rows], rows, 0, epoch, 0.5, 99),
        lambda rows, epoch: change.replace_tokens(TOKENS[rows], rows, 0, epoch, 0.5, np.arange(1, 1001)),
        lambda rows, epoch: change.drop_tokens(TOKENS[rows], rows, 0, epoch, 0.5),
    ],
)
def test_a_draw_depends_on_epoch_and_sample_alone(draw):
    whole = draw(ALL, 1)
    np.testing.assert_array_equal(draw([7, 3], 1), whole[[7, 3]])
    assert (draw(ALL, 2) != whole).any()
