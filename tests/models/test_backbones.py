"""Pre-trained encoders: frozen means frozen, weights fit or are refused, sizes are the published
ones.
"""

import json
import struct
from dataclasses import replace
from itertools import pairwise
from unittest.mock import Mock

import open_clip
import pytest
import torch
from open_clip import transformer
from torch import nn

from channelhash.errors import JobError
from channelhash.models import MODELS, HashModel, load_model
from channelhash.models.backbones import autocast, load_open_clip, load_torchvision
from channelhash.models.paper import (
    PartlyFrozen,
    build_cliphash_branches,
    build_tdsrdh_branches,
)
from channelhash.models.small import WordTable
from channelhash.utils.torchvision_compat import torchvision
from picture_runs import clip_model, resnet_model, tiny_clip
from refusals import check_refusal


@pytest.fixture(scope="module")
def clip_settings(tmp_path_factory):
    return clip_model(tmp_path_factory.mktemp("clip"))


def create(settings, records, **more) -> HashModel:
    settings = {"n_bits": 16} | settings | more
    return MODELS[str(settings.pop("name"))].create(records, **settings)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def linear(n_in: int, n_out: int) -> int:
    return n_in * n_out + n_out


def test_tdsrdh_has_the_papers_sizes():
    with torch.device("meta"):
        branches = build_tdsrdh_branches(
            64, ["image", "text"], "resnet152", None, True, "eval", None, ["word"], 0, 128, True,
            {"image": [4096, 4096], "text": [1024, 8192]}, 0.1,
        )  # fmt: skip
    # ResNet-152 has 60,192,808 weights (torchvision's figure), 2,049,000 of them in its classifier.
    assert count(branches["image"].encoder) == 60_192_808 - linear(2048, 1000)
    assert not any(parameter.requires_grad for parameter in branches["image"].encoder.parameters())
    assert count(branches["image"].head) == linear(2048, 4096) + linear(4096, 4096) + linear(
        4096, 64
    )
    attention = linear(512, 3 * 512) + linear(512, 512)
    layer = attention + linear(512, 2048) + linear(2048, 512) + 2 * 2 * 512
    assert count(branches["text"].encoder) == 2 * 300 + 300 * 512 + layer
    assert count(branches["text"].head) == linear(512, 1024) + linear(1024, 8192) + linear(8192, 64)
    dropouts = {
        part.p
        for branch in branches.values()
        for part in branch.modules()
        if isinstance(part, nn.Dropout)
    }
    assert dropouts == {0.1}


def test_cliphash_has_the_papers_sizes():
    with torch.device("meta"):
        branches = build_cliphash_branches(
            64, ["image", "text"], "ViT-H-14-quickgelu", None, True, "openclip", "{}", False,
            [4096, 4096, 1024, 256], 0.1,
        )  # fmt: skip
    towers = count(branches["image"].encoder) + count(branches["text"].encoder)
    assert towers == 986_109_441
    assert branches["image"].head is branches["text"].head
    widths = [1024, 4096, 4096, 1024, 256, 64]
    head = sum(linear(n_in, n_out) for n_in, n_out in pairwise(widths))
    assert count(branches["image"].head) == head
    assert 4 * head == pytest.approx(100e6, rel=0.05)  # what a checkpoint of the weights takes


@pytest.mark.parametrize("kind", ["cliphash", "tdsrdh"])
def test_a_frozen_backbone_does_not_move(kind, records, clip_settings):
    model = create(clip_settings if kind == "cliphash" else resnet_model(), records)
    frozen = [branch.frozen for branch in model.branches.values() if branch.frozen]
    assert len(frozen) == (2 if kind == "cliphash" else 1)
    before = {name: value.clone() for part in frozen for name, value in part.state_dict().items()}
    assert kind == "cliphash" or any("running_mean" in name for name in before)
    model.train()
    inputs = {
        modality: model.prepare(modality, records.items[modality]) for modality in model.modalities
    }
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.1)
    sum(outputs.square().sum() for outputs in model(inputs).values()).backward()
    optimizer.step()
    after = {name: value for part in frozen for name, value in part.state_dict().items()}
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for part in frozen for parameter in part.parameters())


def test_published_batch_normalisation_drifts_and_is_saved(records, tmp_path):
    model = create(resnet_model(frozen_batchnorm="train"), records)
    pixels = model.prepare("image", records.items["image"])
    before = {
        name: value.clone() for name, value in model.branch("image").encoder.state_dict().items()
    }
    model.train()(dict(image=pixels))
    after = model.branch("image").encoder.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all("running" in name or "tracked" in name for name in moved)
    assert model.branch("image").fixed is None  # no cache may hold its features
    model.save_pretrained(tmp_path)
    images = records.items["image"]
    torch.testing.assert_close(
        load_model(tmp_path).outputs("image", images), model.outputs("image", images)
    )


SMALL = {"name": "small", "width": 8, "image_size": 32}


@pytest.mark.parametrize(("kind", "more"), [
    ("cliphash", {"freeze_backbone": True}), ("cliphash", {"freeze_backbone": False}),
    ("tdsrdh", {"freeze_backbone": True}), ("tdsrdh", {"freeze_backbone": False}),
    ("small", {"text_encoder": "bag"}), ("small", {"text_encoder": "transformer"}),
])  # fmt: skip
def test_a_code_depends_on_its_own_input_and_is_the_saved_models(
    kind, more, records, clip_settings, tmp_path
):
    settings = {"cliphash": clip_settings, "tdsrdh": resnet_model(), "small": SMALL}[kind]
    model = create(settings, records, **more).eval()
    texts, images = list(records.items["text"]), list(records.items["image"])
    alone = {
        "image": model.outputs("image", images[3:4]),
        "text": model.outputs("text", texts[3:4]),
    }
    other = "a much longer text about something else altogether"
    items = {"image": images[::-1], "text": [other, texts[3], ""]}
    batch = model.outputs_prepared(
        {name: model.prepare(name, of_batch) for name, of_batch in items.items()}
    )
    torch.testing.assert_close(
        batch["image"][len(images) - 4], alone["image"][0], atol=1e-4, rtol=1e-3
    )
    torch.testing.assert_close(batch["text"][1], alone["text"][0], atol=1e-5, rtol=1e-4)
    assert batch["text"].isfinite().all()
    model = create(settings, records, **more)
    model.save_pretrained(tmp_path)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    size = (tmp_path / "model.safetensors").stat().st_size
    assert 4 * trained <= size < 4.1 * trained + 60_000  # buffers of an unfrozen ResNet, and names
    loaded = load_model(tmp_path)
    assert loaded.fingerprint() == model.fingerprint()
    for modality in ("image", "text"):
        items = records.items[modality]
        assert (loaded.encode(modality, items) == model.encode(modality, items)).all()


def test_a_model_without_its_backbone_shares_heads_and_saves_itself(
    records, clip_settings, tmp_path
):
    model = create(clip_settings, records)
    feature_model = model.on_features()
    assert feature_model.branch("image").head is model.branch("text").head
    assert list(feature_model.trained_state()) == list(model.trained_state())
    features = model.branch("image").encoder(model.prepare("image", records.items["image"])).numpy()
    torch.testing.assert_close(
        feature_model.outputs("image", features), model.outputs("image", records.items["image"])
    )
    feature_model.save_pretrained(tmp_path)
    assert load_model(tmp_path).fingerprint() == model.fingerprint()


def test_another_backbone_under_a_saved_head_is_refused(records, clip_settings, tmp_path):
    config = str(tiny_clip(tmp_path / "other.json"))
    load_open_clip(config, None)
    clip = open_clip.create_model("other")
    weights = tmp_path / "weights.pt"
    torch.save(clip.state_dict(), weights)
    model = create(clip_settings, records, backbone=config, pretrained=str(weights))
    model.save_pretrained(tmp_path / "model")
    assert load_model(tmp_path / "model").fingerprint() == model.fingerprint()
    with torch.no_grad():
        clip.visual.proj += 0.1
    torch.save(clip.state_dict(), weights)
    check_refusal(r"trained on open_clip .*give the same weights", load_model, tmp_path / "model")


def test_a_configuration_has_its_own_tokenizer(tmp_path):
    net = tiny_clip(tmp_path / "name.json")
    for length in (77, 9):
        net.write_text(
            net.read_text().replace('"context_length": 77', f'"context_length": {length}')
        )
        towers, _ = load_open_clip(str(net), None)
        assert towers["text"][0](["a dog"]).shape == (1, length)


def test_weights_that_do_not_fit_have_unknown_names_or_cannot_be_fetched_are_refused(
    tmp_path, monkeypatch
):
    net, broken, gone = (str(tmp_path / f"{name}.pth") for name in ("net", "broken", "gone"))
    clip = str(tiny_clip(tmp_path / "other.json"))
    torch.save(torchvision.models.resnet34().state_dict(), net)
    (tmp_path / "broken.pth").write_bytes(b"nothing")
    says = r"net\.pth into resnet18: the weights do not fit .* is unknown"
    check_refusal(says, load_torchvision, "resnet18", net)
    check_refusal(r"net\.pth: the weights do not fit other", load_open_clip, clip, net)
    check_refusal(r"broken\.pth: weights cannot be read", load_torchvision, "resnet18", broken)
    check_refusal(r"broken\.pth: weights cannot be read", load_open_clip, clip, broken)
    check_refusal(r"gone\.pth: no such file of weights", load_torchvision, "resnet18", gone)
    check_refusal("did you mean 'resnet152'", load_torchvision, "resnet512", None)
    check_refusal("did you mean 'IMAGENET1K_V1'", load_torchvision, "resnet18", "IMAGENET1K_V9")
    check_refusal("did you mean 'ViT-H-14-quickgelu'", load_open_clip, "ViT-H-14-quickgeluu", None)
    check_refusal("did you mean 'dfn5b'", load_open_clip, "ViT-H-14-quickgelu", "dfn5")
    monkeypatch.setattr(
        open_clip.factory, "download_pretrained", Mock(side_effect=OSError("no network"))
    )
    says = r"cannot be fetched .*no network.*fetch it elsewhere and give openai@FILE"
    check_refusal(says, load_open_clip, "RN50", "openai", error=JobError)


def test_models_of_raw_items_refuse_features(records, clip_settings):
    rows = replace(
        records, items={"image": torch.rand(12, 4).numpy(), "text": records.items["text"]}
    )
    for settings in (clip_settings, resnet_model()):
        check_refusal(
            "reads raw images, the data holds features; use 'features'", create, settings, rows
        )


def test_a_word_table_gives_rows_of_its_vectors():
    vectors = torch.arange(20.0).reshape(10, 2).numpy()
    table = WordTable(vectors)
    for tokens in ([[1, 0, 10]], [[3, 3, 0], [10, 2, 1]]):
        expected = [
            [[0.0, 0.0] if t == 0 else vectors[t - 1].tolist() for t in row] for row in tokens
        ]
        assert table(torch.tensor(tokens, dtype=torch.int32)).tolist() == expected
    assert len(table.rows) == 5  # padding and the four words that were met
    assert not table.state_dict()


@pytest.mark.usefixtures("few_english_words")
def test_tdsrdh_reads_word_vectors_through_the_token_cache(records, tmp_path):
    words = ["red", "green", "blue", "picture"]
    entries = b"".join(
        word.encode() + b" " + struct.pack("<3f", i, 1, -i) for i, word in enumerate(words)
    )
    (tmp_path / "v.bin").write_bytes(f"{len(words)} 3\n".encode() + entries)
    model = create(resnet_model(word_vectors=tmp_path / "v.bin"), records)
    texts = list(records.items["text"])
    branch = model.branch("text")
    assert torch.equal(branch.prepare_collection(texts), branch.prepare(texts))
    model.save_pretrained(tmp_path / "model")
    assert (load_model(tmp_path / "model").encode_texts(texts) == model.encode_texts(texts)).all()
    # no word vectors, no ResNet
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 40e6
    (tmp_path / "v.bin").write_bytes(f"{len(words)} 3\n".encode() + entries[::-1][:1] + entries[1:])
    check_refusal(
        r"v\.bin: not the word vectors that the model was trained with",
        load_model,
        tmp_path / "model",
    )


@pytest.mark.parametrize(
    ("device", "precision", "reduced"),
    [
        ("cuda", "auto", True),
        ("cuda", "float32", False),
        ("cpu", "auto", False),
        ("cpu", "bfloat16", True),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # there is no GPU here
def test_a_gpu_computes_products_in_bfloat16_unless_told_otherwise(device, precision, reduced):
    context = autocast(torch.device(device), precision)
    assert isinstance(context, torch.autocast) is reduced
    assert not reduced or (context.device, context.fast_dtype) == (device, torch.bfloat16)


# ---- the last blocks are trained, and nothing else of the encoder


def deep_clip(path):
    """A model of OpenCLIP with three blocks in each tower."""
    config = json.loads(tiny_clip(path).read_text())
    config["vision_cfg"]["layers"] = config["text_cfg"]["layers"] = 3
    path.write_text(json.dumps(config))
    return str(path)


def trained(module: nn.Module) -> set[str]:
    return {
        name.removeprefix("encoder.")
        for name, values in module.named_parameters()
        if values.requires_grad
    }


@pytest.mark.skipif(
    not hasattr(transformer, "lock_text_tower"), reason="OpenCLIP locks towers of texts from 3.1 on"
)
@pytest.mark.parametrize("n_blocks", [1, 2])
def test_the_same_is_trained_as_where_openclip_locks_its_towers(n_blocks, tmp_path):
    name = deep_clip(tmp_path / "deep.json")
    (ours, _), (theirs, _) = load_open_clip(name, None), load_open_clip(name, None)
    (_, image), (_, text) = theirs.values()
    image[1].lock(unlocked_groups=n_blocks + 1)  # the projection is a group of its own
    transformer.lock_text_tower(text.clip, unlocked_layers=n_blocks + 1)
    assert trained(PartlyFrozen(ours["image"][1], n_blocks)) == trained(image)
    assert trained(PartlyFrozen(ours["text"][1], n_blocks)) == trained(text) - {"clip.logit_scale"}


def test_a_residual_network_is_trained_from_a_block_on(records):
    encoder = PartlyFrozen(load_torchvision("resnet18", None)[0], 3).train()
    assert {name.split(".")[1] + name.split(".")[2] for name in trained(encoder)} == {
        "layer31",
        "layer40",
        "layer41",
    }
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    encoder(torch.rand(4, 3, 64, 64)).square().mean().backward()
    torch.optim.SGD(
        [values for values in encoder.parameters() if values.requires_grad], lr=0.1
    ).step()
    moved = {
        name for name, value in encoder.state_dict().items() if not torch.equal(value, before[name])
    }
    assert {".".join(name.split(".")[2:4]) for name in moved} == {
        "layer3.1",
        "layer4.0",
        "layer4.1",
    }
    assert not any("running" in name or "tracked" in name for name in moved)


@pytest.mark.parametrize("kind", ["cliphash", "tdsrdh"])
def test_a_model_is_saved_with_its_frozen_blocks(kind, records, tmp_path):
    settings = resnet_model(image_size=64) if kind == "tdsrdh" else clip_model(tmp_path)
    if kind == "cliphash":
        settings["backbone"] = deep_clip(tmp_path / "deep.json")
    model = create(settings, records, unfreeze_blocks=1)
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.fingerprint() == model.fingerprint()
    for name, items in records.items.items():
        torch.testing.assert_close(loaded.outputs(name, items), model.outputs(name, items))
    assert trained(loaded) == trained(model)
    refused = [
        ({"unfreeze_blocks": 9}, "model.unfreeze_blocks is 9, but the backbone has"),
        ({"unfreeze_blocks": -1}, "0 or more"),
        ({"unfreeze_blocks": 1, "freeze_backbone": False}, "set model.freeze_backbone=true"),
    ]
    if kind == "tdsrdh":
        refused += [
            (
                {"unfreeze_blocks": 1, "frozen_batchnorm": "train"},
                r"model\.frozen_batchnorm: .*set it to eval",
            )
        ]
    for wrong, says in refused:
        check_refusal(says, create, settings, records, **wrong)
