"""Networks in ONNX files, against the same arithmetic written out."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import channelhash as ch
from channelhash.errors import InputError
from channelhash.models.extractors import Extractor

SIDE = 8


def write_network(path, shape=("n", 3, SIDE, SIDE), outputs=("features",), kind=TensorProto.FLOAT, width=5):
    """A network whose first output is a matrix times all pixel values, and whose others are their mean by channel."""
    n_pixels = int(np.prod([side if isinstance(side, int) else SIDE for side in shape[1:]]))
    weights = np.random.default_rng(0).normal(size=(n_pixels, width)).astype(np.float32)
    nodes = [
        helper.make_node("Flatten", ["pixels"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], [outputs[0]]),
        *(helper.make_node("ReduceMean", ["pixels"], [name], axes=[2, 3], keepdims=0) for name in outputs[1:]),
    ]
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("pixels", kind, shape)],
        [helper.make_tensor_value_info(name, kind, ("n", width if name == outputs[0] else 3)) for name in outputs],
        [numpy_helper.from_array(weights.astype(helper.tensor_dtype_to_np_dtype(kind)), "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return weights


@pytest.fixture
def pictures(tmp_path):
    random = np.random.default_rng(1)
    paths = []
    for i, (width, height) in enumerate([(30, 20), (20, 31), (9, 9)] * 12):  # more than one batch
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(random.integers(0, 255, (height, width, 3), np.uint8)).save(paths[-1])
    return paths


def refusal(call, *arguments) -> str:
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return str(caught.value)


def literal_pixels(path, short_side, resample, mean, std):
    picture = Image.open(path)
    width, height = picture.size
    factor = short_side / min(width, height)
    wide, high = (short_side, int(factor * height)) if width <= height else (int(factor * width), short_side)
    resized = picture.resize((wide, high), resample)
    left, top = round((wide - SIDE) / 2), round((high - SIDE) / 2)
    values = np.zeros((3, SIDE, SIDE))
    for channel in range(3):
        for y in range(SIDE):
            for x in range(SIDE):
                value = resized.getpixel((left + x, top + y))[channel] / 255
                values[channel, y, x] = (value - mean[channel]) / std[channel]
    return values


@pytest.mark.parametrize(
    ("options", "short_side", "resample", "mean", "std"),
    [
        ("pixels=unit", 8, Image.Resampling.BILINEAR, (0, 0, 0), (1, 1, 1)),
        ("pixels=half&size=8", 8, Image.Resampling.BILINEAR, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ("pixels=imagenet&resize=11", 11, Image.Resampling.BILINEAR, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        (
            "resize=9&filter=bicubic&pixels=clip",
            9,
            Image.Resampling.BICUBIC,
            (0.48145466, 0.4578275, 0.40821073),
            (0.26862954, 0.26130258, 0.27577711),
        ),
    ],
)
@pytest.mark.parametrize("shape", [("n", 3, SIDE, SIDE), (1, 3, SIDE, SIDE)])
def test_features_are_the_networks_of_the_prepared_pictures(
    tmp_path, pictures, options, short_side, resample, mean, std, shape
):
    weights = write_network(tmp_path / "net.onnx", shape)
    rows = Extractor(f"onnx:{tmp_path}/net.onnx?{options}", "image", 5)(pictures)
    assert rows.shape == (36, 5)
    for path, row in zip(pictures, rows, strict=True):
        literal = literal_pixels(path, short_side, resample, mean, std).ravel() @ weights
        np.testing.assert_allclose(row, literal, atol=1e-3)


def test_opened_pictures_will_do_and_a_broken_one_is_named(tmp_path, pictures):
    write_network(tmp_path / "net.onnx")
    extractor = Extractor(f"onnx:{tmp_path}/net.onnx?pixels=unit", "image", 5)
    opened = [Image.open(path) for path in pictures]
    np.testing.assert_array_equal(extractor(opened), extractor(pictures))
    (tmp_path / "broken.png").write_bytes(b"\x89PNG nothing")
    assert refusal(extractor, [tmp_path / "broken.png"]).startswith(f"{tmp_path}/broken.png: not a readable picture")


def test_an_output_can_be_named(tmp_path, pictures):
    write_network(tmp_path / "net.onnx", outputs=("features", "means"))
    name = f"onnx:{tmp_path}/net.onnx?pixels=unit"
    rows = Extractor(f"{name}&output=means", "image", 3)(pictures)
    literal = literal_pixels(pictures[4], 8, Image.Resampling.BILINEAR, (0, 0, 0), (1, 1, 1)).mean(axis=(1, 2))
    np.testing.assert_allclose(rows[4], literal, atol=1e-5)
    assert refusal(Extractor(name, "image", 3), pictures).endswith(
        "has the outputs features, means; add output=… with one of them"
    )
    assert refusal(Extractor(f"{name}&output=mean", "image", 3), pictures).endswith(
        "unknown output 'mean'; did you mean 'means'?"
    )


def test_a_size_that_the_file_leaves_open_has_to_be_given(tmp_path, pictures):
    write_network(tmp_path / "net.onnx", ("n", 3, "height", "width"))
    name = f"onnx:{tmp_path}/net.onnx?pixels=unit"
    assert Extractor(f"{name}&size=8", "image", 5)(pictures).shape == (36, 5)
    assert refusal(Extractor(name, "image", 5), pictures).endswith(
        "takes pictures of any size; add size=…, as the features were made"
    )


@pytest.mark.parametrize(
    ("shape", "kind", "options", "says"),
    [
        (("n", 3, 8, 9), TensorProto.FLOAT, "", "takes pictures of 8 × 9, expected one size; check size="),
        (("n", 3, 8, 8), TensorProto.FLOAT, "&size=9", "takes pictures of 8 × 8, expected one size; check size="),
        (("n", 3, 8, 8), TensorProto.FLOAT, "&resize=7", "resize is 7, less than the network's 8 pixels"),
        ((4, 3, 8, 8), TensorProto.FLOAT, "", "takes 4 pictures at a time; export it for any number, or for 1"),
        (
            ("n", 8, 8, 3),
            TensorProto.FLOAT,
            "",
            "takes pixels tensor(float) ['n', 8, 8, 3], expected one input (n, 3, s, s) of float32",
        ),
        (
            ("n", 3, 8, 8),
            TensorProto.FLOAT16,
            "",
            "takes pixels tensor(float16) ['n', 3, 8, 8], expected one input (n, 3, s, s) of float32",
        ),
    ],
)
def test_networks_that_do_not_take_pictures_are_refused(tmp_path, pictures, shape, kind, options, says):
    write_network(tmp_path / "net.onnx", shape, kind=kind)
    name = f"onnx:{tmp_path}/net.onnx?pixels=unit{options}"
    assert refusal(Extractor(name, "image", 5), pictures) == f"image extractor {name}: {says}"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "say how its pixels are normalised: onnx:x.onnx?pixels=unit|half|imagenet|clip"),
        ("?pixels=imagnet", "unknown pixels 'imagnet'; did you mean 'imagenet'?"),
        ("?pixels=unit&filter=cubic", "unknown filter 'cubic'; did you mean 'bicubic'?"),
        ("?pixels=unit&size=0", "size is '0', expected a number of pixels"),
        ("?pixels=unit&resize=big", "resize is 'big', expected a number of pixels"),
        ("?pixel=unit", "unknown option 'pixel' of onnx; did you mean 'pixels'?"),
    ],
)
def test_options_are_checked_before_the_file_is_opened(query, says):
    assert refusal(Extractor, f"onnx:x.onnx{query}", "image", 5) == f"model.extractors.image: {says}"


def test_a_file_that_is_no_network_is_named(tmp_path, pictures):
    name = f"onnx:{tmp_path}/net.onnx?pixels=unit"
    assert refusal(Extractor(name, "image", 5), pictures) == f"image extractor {name}: no such file"
    for content in (b"", b"no network", bytes(100)):
        (tmp_path / "net.onnx").write_bytes(content)
        message = refusal(Extractor(name, "image", 5), pictures)
        assert message.startswith(f"image extractor {name}: not an ONNX file that can be run (")
        assert "\n" not in message
    write_network(tmp_path / "net.onnx")
    whole = (tmp_path / "net.onnx").read_bytes()
    (tmp_path / "net.onnx").write_bytes(whole[: len(whole) // 2])
    assert "not an ONNX file that can be run (" in refusal(Extractor(name, "image", 5), pictures)


def test_a_model_with_such_an_extractor_encodes_pictures(tmp_path, pictures):
    write_network(tmp_path / "net.onnx")
    name = f"onnx:{tmp_path}/net.onnx?pixels=unit"
    features = Extractor(name, "image", 5)(pictures)
    records = ch.data.records.Records(tuple(map(str, range(36))), {"image": features}, np.ones((36, 1), bool), ("x",))
    model = ch.models.MODELS["features"].create(records, 8, hidden=[4], extractors={"image": name})
    np.testing.assert_array_equal(model.encode_images(pictures), model.encode("image", features))
