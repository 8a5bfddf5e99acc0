"""The losses of the literature and RSCH against their literal transcriptions, at the edges, and
where they hold parameters."""

import itertools
import json

import numpy as np
import pytest
import torch
import yaml

from channelhash.config import make_config, read_config
from channelhash.losses import (
    LOSSES,
    PUBLISHED,
    RECOMMENDED,
    CSQLoss,
    HyP2Loss,
    loss_settings,
    make_loss,
)
from channelhash.losses.csq import hash_centres
from channelhash.losses.hyp2 import _largest_cosine
from channelhash.presets import preset_path
from losses import baseline_equations as literal, published_equations as authors
from losses.test_losses import batch
from refusals import check_refusal

N_LABELS = 5


def state(loss):
    """What a loss drew, as arrays."""
    return {
        key: value.detach().double().numpy()
        for key, value in [*loss.named_parameters(), *loss.named_buffers()]
    }


def oracle_of(name, loss, settings):
    """The transcription as a function of (batch, labels), with what the loss drew."""
    transcription, drawn = getattr(literal, name.replace("-", "_")), state(loss)
    keys = {
        "csq": ("centres", "tie_break"),
        "orthohash": ("centres",),
        "greedyhash": ("classifier.weight",),
    }
    arguments = [drawn[key] for key in keys.get(name, ("proxies",)) if key in drawn]

    def oracle(outputs, labels):
        codes = (
            [loss.random_codes(torch.from_numpy(labels)).double().numpy()] if name == "dnph" else []
        )
        return transcription(outputs, labels, *arguments, *codes, **settings)

    return oracle


def arrays(outputs):
    return {name: codes.detach().numpy() for name, codes in outputs.items()}


#: Loss -> the authors' settings, and changes of them.
SETTINGS = {
    "dcmh": (dict(gamma=1.0, eta=1.0), [dict(gamma=0.0), dict(eta=0.3)]),
    "hashnet": (dict(alpha=0.625, beta=1.0), [dict(alpha=0.1), dict(beta=2.0)]),
    "idhn": (
        dict(alpha=5.0, gamma=0.1, lambda_q=0.1),
        [dict(alpha=1.0), dict(gamma=2.0), dict(lambda_q=0.0)],
    ),
    "csq": (dict(lambda_q=0.05), [dict(lambda_q=3.0)]),
    "orthohash": (dict(s=8.0, m=0.2), [dict(s=2.0), dict(m=0.0)]),
    "greedyhash": (dict(alpha=0.1), [dict(alpha=2.0)]),
    "hyp2": (dict(beta=0.5, zeta=0.1), [dict(beta=0.0), dict(beta=4.0, zeta=-0.2)]),
    "dnph": (dict(delta=1.0, lambda_u=0.1), [dict(delta=0.0), dict(lambda_u=2.0)]),
    "talr": (dict(alpha=1.0), [dict(alpha=0.3)]),
    "qsmi": ({}, []),
    "dcgh": (
        dict(alpha=0.05, beta=0.8, gamma=1.0),
        [dict(alpha=2.0), dict(beta=3.0), dict(gamma=0.0)],
    ),
    "sch-original": (
        dict(tau=3.0, alpha=1.0, beta=1.0),
        [dict(tau=0.5), dict(alpha=3.0), dict(beta=0.2)],
    ),
    "rsch": (dict(kappa_q=0.0), [dict(kappa_q=0.2)]),
}
DEFAULTS = {name: defaults for name, (defaults, _) in SETTINGS.items()}
BASELINES = list(DEFAULTS)
CASES = [(name, change, 2) for name in BASELINES for change in ({}, *SETTINGS[name][1])]
CASES += [(name, {}, n_modalities) for name in BASELINES for n_modalities in (1, 3)]


@pytest.mark.parametrize(("name", "change", "n_modalities"), CASES, ids=str)
def test_a_loss_equals_its_equation(name, change, n_modalities):
    torch.manual_seed(0)
    settings = DEFAULTS[name] | change
    outputs, labels = batch(16, n_modalities, n=5)
    loss = make_loss(name, 16, N_LABELS, **settings)
    expected = oracle_of(name, loss, settings)(arrays(outputs), labels.numpy().astype(float))
    assert loss(outputs, labels).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", BASELINES)
def test_defaults_are_those_of_the_authors(name):
    fields = loss_settings(LOSSES[name]).model_fields
    defaults = {key: fields[key].default for key in DEFAULTS[name]}
    computed = {"hashnet": {"alpha": None}, "hyp2": {"zeta": None}}  # of the code length
    assert defaults == DEFAULTS[name] | computed.get(name, {})


def test_proxies_of_dcgh_are_drawn_inside_the_cube_and_one_label_is_enough():
    loss = make_loss("dcgh", 16, 1)
    assert loss.proxies.abs().max() < 1  # tanh of what is drawn
    assert loss({"image": torch.ones(2, 16)}, torch.ones(2, 1)).isfinite()


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "greedyhash"])
def test_the_gradient_is_the_slope_of_the_equation(name):
    """Along a random direction; kinks and assignments do not change within the step."""
    torch.manual_seed(0)
    outputs, labels = batch(16, n=5, seed=1)
    loss = make_loss(name, 16, N_LABELS, **DEFAULTS[name])
    loss(outputs, labels).backward()
    random = np.random.default_rng(7)
    direction = {key: random.normal(size=codes.shape) for key, codes in outputs.items()}
    slope = sum(
        float((codes.grad.numpy() * direction[key]).sum()) for key, codes in outputs.items()
    )
    oracle, start, step = oracle_of(name, loss, DEFAULTS[name]), arrays(outputs), 1e-6
    moved = (
        {key: codes + way * step * direction[key] for key, codes in start.items()}
        for way in (1, -1)
    )
    ahead, behind = (oracle(outputs, labels.numpy().astype(float)) for outputs in moved)
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-4)
    assert slope != 0


def test_the_classifier_of_signs_gives_its_slope_to_the_codes():
    """The gradient by z is the one by b = sgn(z), and that of the penalty."""
    torch.manual_seed(0)
    outputs, labels = batch(16, n=5)
    loss = make_loss("greedyhash", 16, N_LABELS, alpha=0.0)
    loss(outputs, labels).backward()
    bits = {name: codes.detach().sign().requires_grad_() for name, codes in outputs.items()}
    loss(bits, labels).backward()
    for name, codes in outputs.items():
        torch.testing.assert_close(codes.grad, bits[name].grad)
        assert codes.grad.any()


FIRST_TWO = torch.arange(N_LABELS) < 2
LABELS = {
    "all similar": FIRST_TWO.expand(5, N_LABELS),
    "all dissimilar": torch.eye(5).bool(),
    "no labels": torch.zeros(5, N_LABELS).bool(),
    "one labelled": FIRST_TWO & torch.eye(5).bool()[:, :1],
}


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("kind", LABELS)
def test_any_labels_give_a_finite_loss_and_gradient(name, kind):
    torch.manual_seed(0)
    outputs, _ = batch(16, n=5)
    labels = LABELS[kind]
    loss = make_loss(name, 16, N_LABELS, **DEFAULTS[name])
    value = loss(outputs, labels)
    # the transcription divides by the absent kind of pairs
    if not (name == "hashnet" and kind != "no labels"):
        expected = oracle_of(name, loss, DEFAULTS[name])(
            arrays(outputs), labels.numpy().astype(float)
        )
        assert value.item() == pytest.approx(expected, rel=1e-6, abs=1e-12)
    value.backward()
    assert all(codes.grad.isfinite().all() for codes in outputs.values())
    assert all(p.grad is None or p.grad.isfinite().all() for p in loss.parameters())


@pytest.mark.parametrize("name", [*BASELINES, "dsch", "sch", "bsch"])
def test_another_code_length_and_another_number_of_labels_are_refused(name):
    says, made = "for codes of 8 bits, the outputs have 16", make_loss(name, 8, N_LABELS)
    check_refusal(says, made, *batch(16, n=5), error=ValueError)
    if name in ("csq", "orthohash", "greedyhash", "hyp2", "dcgh", "dnph"):
        check_refusal(
            "for 4 labels, the batch has 5",
            make_loss(name, 16, 4),
            *batch(16, n=5),
            error=ValueError,
        )


@pytest.mark.parametrize(
    ("n_labels", "k"), [(1, 4), (5, 8), (8, 8), (16, 8), (24, 16), (7, 1), (5, 12), (20, 8)]
)
def test_centres_are_far_apart_where_there_is_a_hadamard_matrix_and_drawn_from_their_seed_elsewhere(
    n_labels, k
):
    centres = hash_centres(n_labels, k, seed=3)
    assert centres.shape == (n_labels, k)
    assert set(centres.unique().tolist()) <= {-1.0, 1.0}
    assert torch.equal(centres, hash_centres(n_labels, k, seed=3))
    if (n_labels, k) in ((5, 12), (20, 8)):
        assert not torch.equal(centres, hash_centres(n_labels, k, seed=4))
    elif n_labels <= 2 * k:
        assert all((a != b).sum() in (k / 2, k) for a, b in itertools.combinations(centres, 2))


def test_the_centre_of_several_labels_is_their_majority_and_ties_are_drawn_once():
    loss = CSQLoss(16, 3)
    assert torch.equal(loss.centres_of(torch.eye(3)), loss.centres)
    of_all = loss.centres_of(torch.ones(1, 3))
    assert torch.equal(of_all[0], loss.centres.sum(dim=0).sign())
    of_two = loss.centres_of(torch.tensor([[1.0, 1.0, 0.0]]))[0]
    tied = loss.centres[0] != loss.centres[1]
    assert torch.equal(of_two[~tied], loss.centres[0][~tied])
    assert torch.equal(of_two[tied], loss.tie_break[tied])
    assert torch.equal(CSQLoss(16, 3).tie_break, loss.tie_break)
    assert not torch.equal(CSQLoss(16, 3, seed=1).tie_break, loss.tie_break)


@pytest.mark.parametrize(
    ("k", "n_labels", "distance"), [(16, 24, 8), (7, 16, 3), (8, 16, 4), (5, 2, 5)]
)
def test_the_largest_cosine_of_known_codes(k, n_labels, distance):
    """Reed–Muller [16, 5, 8], Hamming [7, 4, 3] and [8, 4, 4], repetition [5, 1, 5]."""
    assert _largest_cosine(k, n_labels) == pytest.approx(1 - 2 * distance / k)
    assert HyP2Loss(k, n_labels).zeta == _largest_cosine(k, n_labels)


def test_random_codes_are_a_function_of_seed_and_labels():
    _, labels = batch(16, n=5)
    torch.manual_seed(0)
    one, same = make_loss("dnph", 16, N_LABELS), make_loss("dnph", 16, N_LABELS)
    assert torch.equal(one.random_codes(labels), same.random_codes(labels.double()))
    assert not torch.equal(one.random_codes(labels), one.random_codes(labels.flip(0)))
    assert not torch.equal(
        one.random_codes(labels), make_loss("dnph", 16, N_LABELS, seed=1).random_codes(labels)
    )


K, N = 16, 6


def draw():
    """Codes of two modalities, and labels of which every two share one with another sample and some
    share none.
    """
    labels = [
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [0, 0, 0, 1, 1],
        [0, 0, 0, 1, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 0, 1, 1],
    ]
    return *np.random.default_rng(0).normal(size=(2, N, K)), np.array(labels, dtype=float)


def value(loss, labels, **outputs):
    return loss(
        {name: torch.from_numpy(codes) for name, codes in outputs.items()},
        torch.from_numpy(labels > 0),
    ).item()


def published(name):
    torch.manual_seed(0)
    return make_loss(name, K, N_LABELS, published=True)


def test_talr_dsph_and_csq():
    image, text, labels = draw()
    assert value(published("talr"), labels, image=image) == pytest.approx(
        1 - authors.talr(image, labels) / N
    )
    loss = published("hyp2")
    expected = authors.dsph(image, text, labels, state(loss)["proxies"], loss.zeta)
    assert value(loss, labels, image=image, text=text) == pytest.approx(expected)
    loss = published("csq")
    expected = authors.csq(image, labels, *(state(loss)[key] for key in ("centres", "tie_break")))
    assert value(loss, labels, image=image) == pytest.approx(expected)


def test_hashnet():
    image, text, labels = draw()
    ours, scale = published("hashnet"), 10 / K
    both = authors.pairwise(np.tanh(image), np.tanh(text), labels, labels, scale)
    assert value(ours, labels, image=image, text=text) == pytest.approx(both)
    halves = np.tanh(image[:3]), np.tanh(image[3:]), labels[:3], labels[3:]
    assert value(ours, labels, image=image) == pytest.approx(authors.pairwise(*halves, scale))
    assert value(ours, labels[:1], image=image[:1]) == 0.0  # one item has no pair


def test_dcmh():
    """A batch of which the training set has four copies is worth what the training set is."""
    image, text, labels = draw()
    for copies in (1, 4):
        loss = make_loss("dcmh", K, N_LABELS, n_train=copies * N, published=True)
        expected = authors.dcmh(*(np.tile(values, (copies, 1)) for values in (image, text, labels)))
        assert value(loss, labels, image=image, text=text) == pytest.approx(expected)
    assert published("dcmh").n_train == 10_000
    third = image[::-1].copy()
    loss = make_loss("dcmh", K, N_LABELS, n_train=N, gamma=0.0, eta=0.0)
    alone = value(loss, labels, image=image)
    assert alone == pytest.approx(authors.dcmh(image, image, labels, gamma=0.0, eta=0.0))
    pairs = itertools.combinations((image, text, third), 2)
    expected = sum(authors.dcmh(a, b, labels, gamma=0.0, eta=0.0) for a, b in pairs)
    assert value(loss, labels, image=image, text=text, audio=third) == pytest.approx(expected)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name != "tdsrdh"])
def test_every_published_setting_has_a_slope_for_all_codes(name):
    image, text, labels = draw()
    outputs = {
        "image": torch.from_numpy(image).requires_grad_(),
        "text": torch.from_numpy(text).requires_grad_(),
    }
    published(name)(outputs, torch.from_numpy(labels > 0)).backward()
    assert all(
        codes.grad.isfinite().all() and codes.grad.any(dim=1).all() for codes in outputs.values()
    )


def test_published_settings_are_settings():
    for name, settings in PUBLISHED.items():
        known = loss_settings(LOSSES[name]).model_fields
        assert settings.keys() <= known.keys()
        assert all(known[key].default != setting for key, setting in settings.items())


SECTIONS = {"data": {"kind": "synthetic", "root": "d"}, "model": {"name": "small"}}


def configured(n_bits=32, **loss):
    return make_config({**SECTIONS, "model": {"name": "small", "n_bits": n_bits}, "loss": loss})


def check_written(word, config, path):
    path.write_text(config.to_yaml())
    assert word not in yaml.safe_load(path.read_text())["loss"]
    assert read_config(path) == config


def test_a_configuration_is_written_back_with_the_settings_that_published_stands_for(tmp_path):
    config = configured(name="talr", published=True, contrastive=0.5)
    assert (config.loss.alpha, config.loss.bin_width, config.terms.contrastive) == (0.5, 2, 0.5)
    check_written("published", config, tmp_path / "c.yaml")
    given = configured(name="talr", published=True, alpha=2.0)
    assert (given.loss.alpha, given.loss.bin_width) == (2.0, 2)
    assert configured(name="talr", published=False).loss.alpha == 1.0


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (
            {"name": "rsch", "published": True},
            "loss.published: nobody else has published 'rsch'; .* talr",
        ),
        ({"name": "talr", "published": "yes"}, "loss.published: is true or false, got 'yes'"),
        ({"name": "talr", "publish": True}, "unknown key loss.publish"),
        (
            {"name": "rsch", "recommended": True},
            "loss.recommended: is not known for 'rsch'; set it to false, or take",
        ),
        ({"name": "dsch", "recommended": "yes"}, "loss.recommended: is true or false, got 'yes'"),
        (
            {"name": "dsch", "recommended": True, "published": True},
            "loss.recommended: the weights are ours or the",
        ),
    ],
    ids=json.dumps,
)
def test_what_cannot_be_is_refused(loss, says):
    check_refusal(says, make_config, SECTIONS | {"loss": loss})


@pytest.mark.parametrize("name", RECOMMENDED)
@pytest.mark.parametrize(("n_bits", "weight"), [(16, 16.0), (32, 32.0), (128, 128.0), (50, 50.0)])
def test_recommended_weights_are_those_of_the_comparison(name, n_bits, weight, tmp_path):
    config = configured(n_bits, name=name, recommended=True)
    assert (config.loss.kappa_q, config.terms.average_precision) == (0.3, weight)
    assert config == configured(n_bits, name=name, kappa_q=0.3, average_precision=weight)
    check_written("recommended", config, tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["loss.name=talr", "loss.published=true"], {"name": "talr", "published": True}),
        (["loss.published=true"], {"name": "dsch", "published": True}),
        (["loss.name=rsch"], {"name": "rsch"}),
        (["loss.name=sch"], {"name": "sch", "recommended": True}),
    ],
)
def test_our_weights_of_a_preset_give_way_to_another_loss(overrides, expected):
    config = read_config(preset_path("recommended"), overrides)
    assert config == make_config({**config.sections(), "loss": expected})


def test_what_is_given_beside_recommended_weights_prevails():
    config = configured(name="sch", recommended=True, kappa_q=0.1, contrastive=0.5)
    assert (config.loss.kappa_q, config.terms.average_precision, config.terms.contrastive) == (
        0.1,
        32.0,
        0.5,
    )
    assert configured(name="dsch", recommended=False).loss.kappa_q == 0.01
