"""torchvision's and OpenCLIP's models as extractors, against these libraries' own preprocessing."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from channelhash.errors import InputError
from channelhash.models.extractors import Extractor
from channelhash.utils.torchvision_compat import torchvision

TINY = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


@pytest.fixture
def pictures(tmp_path):
    random = np.random.default_rng(1)
    paths = []
    for i, (width, height) in enumerate([(300, 260), (240, 301), (64, 64)]):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(random.integers(0, 255, (height // 8, width // 8, 3), np.uint8)).resize((width, height)).save(
            paths[-1]
        )
    return paths


@pytest.mark.parametrize(
    ("name", "tag", "width", "classifier"),
    [
        ("shufflenet_v2_x0_5", "IMAGENET1K_V1", 1024, "fc"),
        ("mobilenet_v3_small", "DEFAULT", 1024, "classifier.3"),
    ],
)
def test_torchvisions_features_are_those_below_the_classifier(tmp_path, pictures, name, tag, width, classifier):
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None).eval()
    torch.save(model.state_dict(), tmp_path / "w.pth")
    rows = Extractor(f"torchvision:{name}/{tag}@{tmp_path}/w.pth", "image", width)(pictures)
    prepare = torchvision.models.get_model_weights(name)[tag].transforms()
    below = []
    model.get_submodule(classifier).register_forward_pre_hook(lambda layer, inputs: below.append(inputs[0]))
    for path, row in zip(pictures, rows, strict=True):
        with torch.no_grad():
            model(prepare(Image.open(path))[None])
        np.testing.assert_allclose(row, below[-1][0].numpy(), atol=1e-4, rtol=1e-4)


def test_torchvisions_weights_have_their_own_mean(tmp_path, pictures, monkeypatch):
    """VGG-16's FEATURES weights want pixels that are not divided; the network itself is replaced by a small one."""
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 224 * 224, 1))
    monkeypatch.setattr(torchvision.models, "get_model", lambda name, weights: flat)
    rows = Extractor("torchvision:vgg16/IMAGENET1K_FEATURES", "image", 3 * 224 * 224)(pictures[:1])
    prepare = torchvision.models.VGG16_Weights.IMAGENET1K_FEATURES.transforms()
    np.testing.assert_allclose(rows[0], prepare(Image.open(pictures[0])).flatten().numpy(), atol=1e-3)


@pytest.fixture
def tiny(tmp_path):
    """The library, a small model that it knows by name, its preprocessing, and a file of its weights."""
    import open_clip  # after channelhash.utils.torchvision_compat, which mends the import of torchvision

    (tmp_path / "channelhash-tiny.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(tmp_path / "channelhash-tiny.json")
    torch.manual_seed(0)
    model, _, prepare = open_clip.create_model_and_transforms("channelhash-tiny")
    torch.save(model.state_dict(), tmp_path / "tiny.pt")
    return open_clip, model.eval(), prepare, tmp_path / "tiny.pt"


def test_open_clips_towers_are_both_extractors(tiny, pictures):
    open_clip, model, prepare, file = tiny
    texts = ["a photo of a dog", "", "words " * 40]
    with torch.no_grad():
        images = torch.cat([model.encode_image(prepare(Image.open(path))[None]) for path in pictures]).numpy()
        embeddings = model.encode_text(open_clip.get_tokenizer("channelhash-tiny")(texts)).numpy()
    name = f"open_clip:channelhash-tiny/{file}"
    np.testing.assert_allclose(Extractor(name, "image", 12)(pictures), images, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(Extractor(name, "text", 12)(texts), embeddings, atol=1e-4, rtol=1e-4)
    rows = Extractor(f"{name}?normalize", "text", 12)(texts)
    np.testing.assert_allclose(rows, embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True), atol=1e-5)


def test_open_clip_names_that_do_not_fit_are_refused(tiny):
    *_, file = tiny
    with pytest.raises(InputError, match=r"open_clip:ViT-B-33/openai: unknown .*'ViT-B-33'; did you mean 'ViT-B-"):
        Extractor("open_clip:ViT-B-33/openai", "text", 12)(["a"])
    with pytest.raises(InputError, match=r"shape \(1, 12\), expected \(1, 512\)"):
        Extractor(f"open_clip:channelhash-tiny/{file}", "text", 512)(["a"])
