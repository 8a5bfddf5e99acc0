"""Encoders in a folder of ONNX files: small graphs in the layouts that are published, what is wrong
with a folder, and a model of OpenCLIP that was converted.
"""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from channelhash.models.encoders import open_encoder
from extras import needs
from picture_runs import tiny_clip
from refusals import check_refusal
from small_runs import run_command, run_text

needs("onnx")
needs("encoders")
import onnx  # noqa: E402 - after the extras are known to be there
import tokenizers  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "cat", "beach", "red", "bus"]
WIDTH = 6
SIDE = 4
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(len(WORDS), WIDTH)).astype(np.float32)
COLOURS = RNG.normal(size=(3, WIDTH)).astype(np.float32)
MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]


def text_nodes(output, has_mask=True):
    """The mean of the rows of the tokens that there are."""
    mask = "attention_mask" if has_mask else "ones"
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("Unsqueeze", ["mask_f", "last"], ["mask_3"]),
        helper.make_node("Mul", ["rows", "mask_3"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "middle"], ["sum"], keepdims=0),
        helper.make_node("ReduceSum", ["mask_f", "middle"], ["count"], keepdims=1),
        helper.make_node("Div", ["sum", "count"], [output]),
    ]
    cast = helper.make_node("Cast", [mask], ["mask_f"], to=TensorProto.FLOAT)
    if has_mask:
        return [cast, *nodes]
    shape = [
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node(
            "ConstantOfShape",
            ["shape"],
            ["ones"],
            value=helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0]),
        ),
    ]
    return [*shape, cast, *nodes]


def image_nodes(output):
    """The mean of the pixels, times a matrix."""
    return [
        helper.make_node("GlobalAveragePool", ["pixel_values"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "colours"], [output]),
    ]


def save(path, nodes, inputs, outputs, kind=np.float32):
    """Write a graph; inputs are named with their types and shapes."""
    constants = {
        "table": TABLE.astype(kind),
        "colours": COLOURS.astype(kind),
        "last": np.array([2]),
        "middle": np.array([1]),
    }
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, *form) for name, form in inputs.items()],
        [helper.make_tensor_value_info(name, *form) for name, form in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)


IDS = {"input_ids": (TensorProto.INT64, ["n", "m"])}
MASK = {"attention_mask": (TensorProto.INT64, ["n", "m"])}
PIXELS = {"pixel_values": (TensorProto.FLOAT, ["n", 3, SIDE, SIDE])}


def rows(name):
    return {name: (TensorProto.FLOAT, ["n", WIDTH])}


def write_settings(folder, **more):
    """Write the JSON files of a folder: a tokenizer of `WORDS`, squashed images."""
    folder.mkdir(exist_ok=True)
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    files = {
        "tokenizer_config.json": {"pad_token": "[PAD]", "model_max_length": 10},
        "config.json": {"model_type": "clip"},
        "preprocessor_config.json": {
            "size": {"height": SIDE, "width": SIDE},
            "resample": 2,
            "image_mean": MEAN,
            "image_std": STD,
        },
    }
    for name, settings in (files | more).items():
        if settings is not None:
            (folder / name).write_text(json.dumps(settings))


def two_graphs(folder, ending=""):
    write_settings(folder)
    save(
        folder / f"onnx/text_model{ending}.onnx",
        text_nodes("text_embeds"),
        IDS | MASK,
        rows("text_embeds"),
    )
    save(
        folder / f"onnx/vision_model{ending}.onnx",
        image_nodes("image_embeds"),
        PIXELS,
        rows("image_embeds"),
    )


def pooled_graphs(folder):
    """As of SigLIP: no mask, texts of one length, another name of the outputs."""
    write_settings(
        folder,
        **{"config.json": {"model_type": "siglip", "text_config": {"max_position_embeddings": 7}}},
    )
    nodes = text_nodes("pooler_output", has_mask=False)
    save(folder / "text_model.onnx", nodes, IDS, rows("pooler_output"))
    save(folder / "vision_model.onnx", image_nodes("pooler_output"), PIXELS, rows("pooler_output"))


def one_graph(folder):
    write_settings(folder)
    nodes = [*text_nodes("text_embeds"), *image_nodes("image_embeds")]
    save(
        folder / "model.onnx",
        nodes,
        IDS | PIXELS | MASK,
        rows("image_embeds") | rows("text_embeds"),
    )


def texts_alone(folder):
    write_settings(folder)
    nodes = text_nodes("sentence_embedding")
    hidden = {"last_hidden_state": (TensorProto.FLOAT, ["n", "m", WIDTH])}
    copy = helper.make_node("Identity", ["rows"], ["last_hidden_state"])
    save(
        folder / "onnx/model.onnx", [*nodes, copy], IDS | MASK, hidden | rows("sentence_embedding")
    )


LAYOUTS = {each.__name__: each for each in (two_graphs, pooled_graphs, one_graph, texts_alone)}
TEXTS = ["a red bus", "dog", "a cat , a dog at the beach", ""]


def text_features(texts, length=None, padding=None):
    """The mean of the rows of tokens, text by text."""
    means = []
    for text in texts:
        ids = [WORDS.index(word) if word in WORDS else 1 for word in text.split()]
        ids = [2, *ids[: (length or 10) - 2], 3]
        if padding is not None:
            ids += [padding] * (length - len(ids))
        means.append(TABLE[ids].mean(axis=0))
    return np.array(means)


@pytest.fixture
def pictures(tmp_path):
    """Three pictures and their features, pixel by pixel."""
    paths, features = [], []
    for number in range(3):
        pixels = RNG.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
        paths.append(tmp_path / f"{number}.png")
        features.append((pixels / 255 - MEAN).mean(axis=(0, 1)) / STD @ COLOURS)
    return SimpleNamespace(paths=paths, features=np.array(features))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_gives_what_its_graphs_compute(tmp_path, pictures, layout):
    LAYOUTS[layout](tmp_path / "model")
    encoder = open_encoder(f"onnx:{tmp_path / 'model'}")
    padded = {"length": 7, "padding": 0} if layout == "pooled_graphs" else {}
    np.testing.assert_allclose(
        encoder.features("text", TEXTS), text_features(TEXTS, **padded), atol=1e-5
    )
    if layout == "texts_alone":
        assert encoder.modalities == ("text",)
    else:
        assert encoder.one_space
        np.testing.assert_allclose(
            encoder.features("image", pictures.paths), pictures.features, atol=1e-5
        )


def test_half_precision_and_a_short_side_are_read_as_the_files_say(tmp_path, pictures):
    crop = {"size": {"shortest_edge": SIDE}, "do_center_crop": True, "crop_size": SIDE}
    plain = {"resample": 3, "do_normalize": False, "rescale_factor": 0.5}
    settings = {"processor_config.json": {"image_processor": crop | plain}}
    write_settings(tmp_path, **settings, **{"preprocessor_config.json": None})
    (tmp_path / "preprocessor_config.json").unlink(missing_ok=True)
    half = {"pixel_values": (TensorProto.FLOAT16, ["n", 3, "height", "width"])}
    output = {"image_embeds": (TensorProto.FLOAT16, ["n", WIDTH])}
    save(tmp_path / "vision_model.onnx", image_nodes("image_embeds"), half, output, np.float16)
    wide = np.asarray(Image.open(pictures.paths[0]))
    Image.fromarray(np.hstack([wide[:, :1], wide, wide[:, -1:]])).save(tmp_path / "wide.png")
    encoder = open_encoder(f"onnx:{tmp_path}")
    expected = 0.5 * wide.mean(axis=(0, 1)) @ COLOURS
    assert encoder.modalities == ("image",)
    np.testing.assert_allclose(
        encoder.features("image", [tmp_path / "wide.png"])[0], expected, rtol=0.01, atol=0.5
    )


def test_texts_without_a_padding_token_run_one_by_one(tmp_path):
    write_settings(tmp_path, **{"tokenizer_config.json": {}})
    save(tmp_path / "model.onnx", text_nodes("x", has_mask=False), IDS, rows("x"))
    features = open_encoder(f"onnx:{tmp_path}").features("text", TEXTS)
    np.testing.assert_allclose(features, text_features(TEXTS, length=512), atol=1e-5)


def test_a_text_has_the_same_features_whatever_stands_beside_it(tmp_path):
    two_graphs(tmp_path)
    encoder = open_encoder(f"onnx:{tmp_path}")
    alone = [encoder.features("text", [text])[0] for text in TEXTS]
    np.testing.assert_allclose(encoder.features("text", TEXTS), alone, atol=1e-6)
    assert encoder.features("text", []).shape == (0, WIDTH)


def test_one_of_several_variants_is_named(tmp_path):
    two_graphs(tmp_path, "_q4")
    assert open_encoder(f"onnx:{tmp_path}").modalities == ("image", "text")
    two_graphs(tmp_path, "_fp16")
    says = "has vision_model as fp16, q4; name one of these"
    check_refusal(says, open_encoder, f"onnx:{tmp_path}")
    for variant in ("fp16", "q4"):
        assert open_encoder(f"onnx:{tmp_path}@{variant}").word == f"onnx:{tmp_path}@{variant}"


def other(inputs=IDS, outputs=None, nodes=None, **settings):
    """Return what writes a folder with a graph of texts that differs in something."""

    def write(folder):
        write_settings(folder, **settings)
        form = outputs or rows("text_embeds")
        save(folder / "model.onnx", nodes or text_nodes("text_embeds", False), inputs, form)

    return write


TWO = {"left_ids": IDS["input_ids"], **IDS}
HIDDEN = {"rows": (TensorProto.FLOAT, ["n", "m", WIDTH])}
NAN = [*text_nodes("x", False), helper.make_node("Log", ["y"], ["text_embeds"])]
BAD = {
    "no folder": (lambda folder: None, "is no folder"),
    "no graph": (write_settings, "nor its folder onnx has text_model.onnx"),
    "damaged graph": (
        lambda folder: (write_settings(folder), (folder / "model.onnx").write_bytes(b"no")),
        "model.onnx: not an ONNX file that can be run",
    ),
    "other inputs": (
        other({"input_ids": (TensorProto.INT64, ["n", "m"]), "audio": (TensorProto.FLOAT, ["n"])}),
        "takes audio, tensor(float) of 1 dimensions",
    ),
    "two texts": (other(TWO), "takes left_ids and input_ids"),
    "no row an item": (
        other(outputs=HIDDEN, nodes=[helper.make_node("Gather", ["table", "input_ids"], ["rows"])]),
        "gives rows, none of which is known to stand for a whole text",
    ),
    "no tokenizer": (
        lambda folder: (other()(folder), (folder / "tokenizer.json").unlink()),
        "tokenizer.json: not a tokenizer",
    ),
    "no padding of one length": (
        other(**{"tokenizer_config.json": {}, "config.json": {"model_type": "siglip2"}}),
        "no file names the token that pads",
    ),
    "settings that are none": (
        lambda folder: (two_graphs(folder), (folder / "preprocessor_config.json").write_text("[]")),
        "preprocessor_config.json: does not say how items are read",
    ),
    "no square": (
        lambda folder: (
            two_graphs(folder),
            write_settings(
                folder, **{"preprocessor_config.json": {"size": {"height": 2, "width": 4}}}
            ),
        ),
        "does not say how items are read",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_folder_that_cannot_be_used_is_an_error_of_one_line(tmp_path, case):
    write, says = BAD[case]
    write(tmp_path / "model")
    check_refusal(re.escape(says), open_encoder, f"onnx:{tmp_path / 'model'}")


def test_weights_beside_a_graph_belong_to_the_encoder(tmp_path):
    texts_alone(tmp_path)
    path = tmp_path / "onnx" / "model.onnx"
    whole = open_encoder(f"onnx:{tmp_path}").sides["text"]
    parts = {"save_as_external_data": True, "location": "model.onnx_data", "size_threshold": 100}
    onnx.save(onnx.load(path), path, **parts)
    parted = open_encoder(f"onnx:{tmp_path}").sides["text"]
    data = path.with_name("model.onnx_data")
    content = bytearray(data.read_bytes())
    content[2] ^= 1  # of the first number, a bit that changes little
    data.write_bytes(content)
    other = open_encoder(f"onnx:{tmp_path}").sides["text"]
    assert len({side.identity["weights"] for side in (whole, parted, other)}) == 3


def test_a_folder_of_photographs_is_searched_and_another_model_refused(
    tmp_path, monkeypatch, pictures, capsys
):
    two_graphs(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    for path in pictures.paths:
        path.rename(photographs / path.name)
    encoder = f"onnx:{tmp_path / 'model'}"
    index = ["index", "create", tmp_path / "my.store", photographs, "--encoder", "onnx:model"]
    assert run_command(*index, "--bits", "16", "--method", "sign") == 0
    shown = run_text(capsys, "search", tmp_path / "my.store", "--text", "a red bus", "--all")
    assert all(path.name in shown for path in pictures.paths)
    TABLE[4] += 1
    two_graphs(tmp_path / "model")
    TABLE[4] -= 1
    assert run_command("search", tmp_path / "my.store", "--text", "a red bus") == 2
    assert f"fitted to {encoder}" in capsys.readouterr().err


def write_converted(folder, encoder):
    """Convert a model of OpenCLIP: both towers, its tokenizer, how its images are read."""
    import torch

    towers = {name: side.network.network.encoder for name, side in encoder.sides.items()}
    tokens = torch.zeros((1, 77), dtype=torch.int64)
    side = encoder.sides["image"].prepare.size
    forms = {
        "vision_model": (towers["image"][1], torch.zeros((1, 3, side, side)), "pixel_values"),
        "text_model": (towers["text"], tokens, "input_ids"),
    }
    for name, (tower, items, given) in forms.items():
        output = "image_embeds" if name == "vision_model" else "text_embeds"
        torch.backends.mha.set_fastpath_enabled(False)
        torch.onnx.export(
            tower.eval(),
            (items,),
            str(folder / f"{name}.onnx"),
            input_names=[given],
            output_names=[output],
            dynamic_axes={given: {0: "n"}},
            dynamo=False,
        )
        torch.backends.mha.set_fastpath_enabled(True)
    write_clip_tokenizer(folder / "tokenizer.json")
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    images = {"size": {"shortest_edge": side}, "resample": 3, "do_center_crop": True}
    images |= {"crop_size": {"height": side, "width": side}, "image_mean": mean, "image_std": std}
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "!"}))


def write_clip_tokenizer(path):
    """Write the byte pairs of OpenCLIP as the library tokenizers keeps them."""
    from open_clip.tokenizer import SimpleTokenizer

    own = SimpleTokenizer()
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(own.encoder, list(own.bpe_ranks), end_of_word_suffix="</w>")
    )
    normal = tokenizers.normalizers
    tokenizer.normalizer = normal.Sequence([normal.NFC(), normal.Lowercase()])
    parts = tokenizers.Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    split = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = split.Sequence(
        [split.Split(parts, "removed", invert=True), split.ByteLevel(add_prefix_space=False)]
    )
    ends = {name: own.encoder[f"<{name}>"] for name in ("start_of_text", "end_of_text")}
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<start_of_text> $A <end_of_text>",
        special_tokens=[(f"<{name}>", number) for name, number in ends.items()],
    )
    tokenizer.save(str(path))


@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_a_model_of_openclip_gives_the_same_after_its_conversion(tmp_path):
    needs("clip")
    encoder = open_encoder(f"openclip:{tiny_clip(tmp_path / 'net.json')}")
    write_converted(tmp_path, encoder)
    converted = open_encoder(f"onnx:{tmp_path}")
    texts = ["Two dogs' bones, at 9:30!", "ein Hund am Strand", "a " * 100, "狗", ""]
    images = []
    for number, (width, height) in enumerate(((50, 33), (32, 32), (40, 90))):
        pixels = RNG.integers(0, 256, (height, width, 3), dtype=np.uint8)
        images.append(tmp_path / f"{number}.png")
        Image.fromarray(pixels).save(images[-1])
    for modality, items in (("text", texts), ("image", images)):
        np.testing.assert_allclose(
            converted.features(modality, items), encoder.features(modality, items), atol=1e-4
        )
