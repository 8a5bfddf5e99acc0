"""The last blocks of a pre-trained encoder are trained, and nothing else of it."""

import json

import numpy as np
import pytest
import torch
from open_clip import transformer
from torch import nn

from channelhash.errors import InputError
from channelhash.models import MODELS, load_model
from channelhash.models.backbones import PartlyFrozen
from channelhash.models.photo import _image_features, missing_packages
from channelhash.models.pretrained import image_layers, load_open_clip, load_torchvision
from picture_runs import clip_model, resnet_model, tiny_clip
from refusals import check_refusal

needs_package = pytest.mark.skipif(bool(missing_packages()), reason="the packages of the encoder photo")


def deep_clip(path):
    """A model of OpenCLIP with three blocks in each tower."""
    config = json.loads(tiny_clip(path).read_text())
    config["vision_cfg"]["layers"] = config["text_cfg"]["layers"] = 3
    path.write_text(json.dumps(config))
    return str(path)


def trained(module: nn.Module) -> set[str]:
    return {name.removeprefix("encoder.") for name, values in module.named_parameters() if values.requires_grad}


@pytest.mark.skipif(not hasattr(transformer, "lock_text_tower"), reason="OpenCLIP locks towers of texts from 3.1 on")
@pytest.mark.parametrize("n_blocks", [1, 2])
def test_the_same_is_trained_as_where_openclip_locks_its_towers(n_blocks, tmp_path):
    name = deep_clip(tmp_path / "deep.json")
    ours, theirs = load_open_clip(name, None), load_open_clip(name, None)
    theirs.image[1].lock(unlocked_groups=n_blocks + 1)  # the projection is a group of its own
    transformer.lock_text_tower(theirs.text.clip, unlocked_layers=n_blocks + 1)
    assert trained(PartlyFrozen(ours.image, n_blocks)) == trained(theirs.image)
    assert trained(PartlyFrozen(ours.text, n_blocks)) == trained(theirs.text) - {"clip.logit_scale"}


def test_a_residual_network_is_trained_from_a_block_on(records):
    encoder = PartlyFrozen(load_torchvision("resnet18", None)[0], 3).train()
    assert {name.split(".")[1] + name.split(".")[2] for name in trained(encoder)} == {"layer31", "layer40", "layer41"}
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder(torch.rand(4, 3, 64, 64)).square().mean().backward()
    torch.optim.SGD([values for values in encoder.parameters() if values.requires_grad], lr=0.1).step()
    moved = {name for name, value in encoder.state_dict().items() if not torch.equal(value, before[name])}
    assert {".".join(name.split(".")[2:4]) for name in moved} == {"layer3.1", "layer4.0", "layer4.1"}
    assert not any("running" in name or "tracked" in name for name in moved)


@pytest.mark.parametrize("kind", ["cliphash", "tdsrdh"])
def test_a_model_is_saved_with_its_frozen_blocks(kind, records, tmp_path):
    settings = resnet_model(image_size=64) if kind == "tdsrdh" else clip_model(tmp_path)
    if kind == "cliphash":
        settings["backbone"] = deep_clip(tmp_path / "deep.json")
    more = {key: value for key, value in settings.items() if key != "name"}
    model = MODELS[kind].create(records, n_bits=16, unfreeze_blocks=1, **more)
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.fingerprint() == model.fingerprint()
    for name, items in records.items.items():
        torch.testing.assert_close(loaded.outputs(name, items), model.outputs(name, items))
    assert trained(loaded) == trained(model)
    for wrong, says in (
        ({"unfreeze_blocks": 9}, "model.unfreeze_blocks is 9, but the backbone has"),
        ({"unfreeze_blocks": -1}, "0 or more"),
        ({"unfreeze_blocks": 1, "freeze_backbone": False}, "set model.freeze_backbone=true"),
    ):
        check_refusal(says, MODELS[kind].create, records, n_bits=16, **more | wrong)
    if kind == "tdsrdh":
        with pytest.raises(InputError, match=r"model\.frozen_batchnorm: .*set it to eval"):
            MODELS[kind].create(records, n_bits=16, unfreeze_blocks=1, frozen_batchnorm="train", **more)


@needs_package
def test_the_packaged_network_of_layers_is_the_one_of_the_encoder_photo():
    pixels = torch.randint(0, 256, (2, 3, 260, 260), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    layers = image_layers("package").eval()
    with torch.no_grad():
        features = layers(pixels).numpy()
        np.testing.assert_allclose(_image_features(pixels.numpy()), features, atol=5e-3 * features.max())
    check_refusal(r"model\.pretrained of efficientnet-lite2 is package or null, got 'DEFAULT'", image_layers, "DEFAULT")
