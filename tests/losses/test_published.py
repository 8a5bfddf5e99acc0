"""``published: true``: losses against their authors' formulas; ``recommended: true``: our weights."""

import itertools
import json

import numpy as np
import pytest
import torch
import yaml

from channelhash.config import make_config, read_config
from channelhash.lab.experiments.experiment import Design, _choose_losses
from channelhash.losses import LOSSES, PUBLISHED, RECOMMENDED, loss_settings, make_loss
from losses import published_equations as authors
from refusals import check_refusal

K, N, N_LABELS = 16, 6, 5


def draw(n=N, seed=0):
    """Codes of two modalities, and labels of which every two share one with another sample and some share none."""
    random = np.random.default_rng(seed)
    labels = np.array(
        [[1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 1]]
    )
    return *random.normal(size=(2, n, K)), labels[:n].astype(float)


def value(loss, labels, **outputs):
    return loss({name: torch.from_numpy(codes) for name, codes in outputs.items()}, torch.from_numpy(labels > 0)).item()


def published(name):
    torch.manual_seed(0)
    return make_loss(name, K, N_LABELS, published=True)


def state(loss, key):
    return {**dict(loss.named_parameters()), **dict(loss.named_buffers())}[key].detach().double().numpy()


def close(expected):
    return pytest.approx(expected, rel=1e-6)


def test_talr():
    image, _, labels = draw()
    assert value(published("talr"), labels, image=image) == close(1 - authors.talr(image, labels) / N)


def test_dsph():
    image, text, labels = draw()
    loss = published("hyp2")
    expected = authors.dsph(image, text, labels, state(loss, "proxies"), loss.zeta)
    assert value(loss, labels, image=image, text=text) == close(expected)


def test_csq():
    image, _, labels = draw()
    loss = published("csq")
    expected = authors.csq(image, labels, state(loss, "centres"), state(loss, "tie_break"))
    assert value(loss, labels, image=image) == close(expected)


def test_hashnet():
    image, text, labels = draw()
    ours, scale = published("hashnet"), 10 / K
    both = authors.pairwise(np.tanh(image), np.tanh(text), labels, labels, scale)
    assert value(ours, labels, image=image, text=text) == close(both)
    halves = np.tanh(image[:3]), np.tanh(image[3:]), labels[:3], labels[3:]
    assert value(ours, labels, image=image) == close(authors.pairwise(*halves, scale))
    assert value(ours, labels[:1], image=image[:1]) == 0.0  # one item has no pair


def test_dcmh():
    """A batch of which the training set has four copies is worth what the training set is."""
    image, text, labels = draw()
    for copies in (1, 4):
        loss = make_loss("dcmh", K, N_LABELS, n_train=copies * N, published=True)
        expected = authors.dcmh(*(np.tile(values, (copies, 1)) for values in (image, text, labels)))
        assert value(loss, labels, image=image, text=text) == close(expected)
    assert published("dcmh").n_train == 10_000
    third = image[::-1].copy()
    loss = make_loss("dcmh", K, N_LABELS, n_train=N, gamma=0.0, eta=0.0)
    alone = value(loss, labels, image=image)
    assert alone == close(authors.dcmh(image, image, labels, gamma=0.0, eta=0.0))
    pairs = itertools.combinations((image, text, third), 2)
    expected = sum(authors.dcmh(a, b, labels, gamma=0.0, eta=0.0) for a, b in pairs)
    assert value(loss, labels, image=image, text=text, audio=third) == close(expected)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name != "tdsrdh"])
def test_every_published_setting_has_a_slope_for_all_codes(name):
    image, text, labels = draw()
    outputs = {"image": torch.from_numpy(image).requires_grad_(), "text": torch.from_numpy(text).requires_grad_()}
    published(name)(outputs, torch.from_numpy(labels > 0)).backward()
    assert all(codes.grad.isfinite().all() and codes.grad.any(dim=1).all() for codes in outputs.values())


def test_published_settings_are_settings():
    for name, settings in PUBLISHED.items():
        known = loss_settings(LOSSES[name]).model_fields
        assert settings.keys() <= known.keys()
        assert all(known[key].default != setting for key, setting in settings.items())


SECTIONS = {"data": {"kind": "synthetic", "root": "d"}, "model": {"name": "small"}}


def test_a_configuration_is_written_back_with_the_settings_that_published_stands_for(tmp_path):
    config = make_config(SECTIONS | {"loss": {"name": "talr", "published": True, "contrastive": 0.5}})
    assert (config.loss.alpha, config.loss.bin_width, config.terms.contrastive) == (0.5, 2, 0.5)
    assert "published" not in yaml.safe_load(config.to_yaml())["loss"]
    (tmp_path / "c.yaml").write_text(config.to_yaml())
    assert read_config(tmp_path / "c.yaml") == config
    given = make_config(SECTIONS | {"loss": {"name": "talr", "published": True, "alpha": 2.0}})
    assert (given.loss.alpha, given.loss.bin_width) == (2.0, 2)
    assert make_config(SECTIONS | {"loss": {"name": "talr", "published": False}}).loss.alpha == 1.0


@pytest.mark.parametrize(("loss", "says"), [
    ({"name": "rsch", "published": True}, "loss.published: nobody else has published 'rsch'; .* talr"),
    ({"name": "talr", "published": "yes"}, "loss.published: is true or false, got 'yes'"),
    ({"name": "talr", "publish": True}, "unknown key loss.publish"),
    ({"name": "rsch", "recommended": True}, "loss.recommended: is not known for 'rsch'; set it to false, or take"),
    ({"name": "dsch", "recommended": "yes"}, "loss.recommended: is true or false, got 'yes'"),
    ({"name": "dsch", "recommended": True, "published": True}, "loss.recommended: the weights are either ours or"),
], ids=json.dumps)  # fmt: skip
def test_what_cannot_be_is_refused(loss, says):
    check_refusal(says, make_config, SECTIONS | {"loss": loss})


def configured(n_bits=32, **loss):
    return make_config({**SECTIONS, "model": {"name": "small", "n_bits": n_bits}, "loss": loss})


@pytest.mark.parametrize("name", RECOMMENDED)
@pytest.mark.parametrize(("n_bits", "weight"), [(16, 4.0), (32, 8.0), (64, 16.0), (128, 32.0), (50, 12.5)])
def test_recommended_weights_are_those_of_the_comparison(name, n_bits, weight, tmp_path):
    config = configured(n_bits, name=name, recommended=True)
    assert (config.loss.kappa_q, config.terms.average_precision) == (0.3, weight)
    assert config == configured(n_bits, name=name, kappa_q=0.3, average_precision=weight)
    assert "recommended" not in yaml.safe_load(config.to_yaml())["loss"]
    (tmp_path / "c.yaml").write_text(config.to_yaml())
    assert read_config(tmp_path / "c.yaml") == config


def test_what_is_given_beside_recommended_weights_prevails():
    config = configured(name="sch", recommended=True, kappa_q=0.1, contrastive=0.5)
    assert (config.loss.kappa_q, config.terms.average_precision, config.terms.contrastive) == (0.1, 8.0, 0.5)
    assert configured(name="dsch", recommended=False).loss.kappa_q == 0.01


def test_the_recommended_loss_in_python():
    outputs = {name: torch.randn(6, 16, generator=torch.Generator().manual_seed(3)) for name in ("image", "text")}
    labels = torch.eye(6)[:, :3] + torch.eye(6)[:, 3:]
    ours, literal = (
        make_loss("dsch", 16, 3, **settings)(outputs, labels)
        for settings in ({"recommended": True}, {"kappa_q": 0.3, "average_precision": 4.0})
    )
    assert ours == literal
    assert ours != make_loss("dsch", 16, 3)(outputs, labels)


def test_a_grid_compares_recommended_weights_at_each_code_length():
    chosen = _choose_losses(["dsch", "dsch:recommended"], {})
    assert list(chosen) == ["DSCH", "DSCH, recommended"]
    runs = Design(SECTIONS, [16, 64], [0]).runs("DSCH, recommended", chosen["DSCH, recommended"])
    assert [run.config.terms.average_precision for run in runs] == [4.0, 16.0]
