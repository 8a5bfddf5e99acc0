"""Without settings each loss is the published one: the values that its paper or the protocol gives are its defaults."""

import inspect

import pytest

from channelhash.losses import LOSSES

DEFAULTS = {
    "dsch": dict(lambda_neg=None, tau=1.0, gamma_w=8.0, gamma_l=1.0, alpha=1.0, beta=1.0, kappa_q=0.01),
    "bsch": dict(similarity_ratio=None, rho=1.0, alpha=1.0, beta=1.0, gamma_l=1.0, kappa_q=0.1),
    "rsch": dict(kappa_q=0.0),
    "sch": dict(tau=3.0, alpha=1.0, beta=1.0, kappa_q=0.0),
    "sch-original": dict(tau=3.0, alpha=1.0, beta=1.0),
    "tdsrdh": dict(alpha=0.05, beta=1.0, epsilon=0.3),
    "dcmh": dict(gamma=1.0, eta=1.0, n_train=None),
    "hashnet": dict(alpha=None, beta=1.0, weighted=True),
    "idhn": dict(alpha=5.0, gamma=0.1, lambda_q=0.1),
    "csq": dict(lambda_q=0.05, seed=0, squared=False, lambda_p=0.0),
    "orthohash": dict(s=8.0, m=0.2, seed=0),
    "greedyhash": dict(alpha=0.1),
    "hyp2": dict(beta=0.5, zeta=None, dsph=False),
    "dnph": dict(delta=1.0, lambda_u=0.1, seed=0),
    "talr": dict(alpha=1.0, bin_width=1),
    "qsmi": dict(),
    "dcgh": dict(alpha=0.05, beta=0.8, gamma=1.0),
    "contrastive": dict(temperature=0.07),
}


@pytest.mark.parametrize("name", LOSSES)
def test_defaults(name):
    parameters = inspect.signature(LOSSES[name]).parameters.items()
    assert {key: value.default for key, value in parameters if value.default is not value.empty} == DEFAULTS[name]
