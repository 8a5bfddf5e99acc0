"""Simulated searches over an index in replicated parts: how often a part is gone, how long the slowest answers take."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from channelhash.lab.capacity.plans import Serving
from channelhash.utils.seeds import generator


def simulate(serving: Serving, seed: int, queries: int = 100_000) -> dict[str, float]:
    """Simulate the time of a query, which is the time of its slowest part, where all parts answer.

    Returns:
        ``{"answered": share of queries whose parts all have a machine, "p50": s, "p99": s, "p999": s, "requests":
        requests a part and query}``. A second request needs a second machine that is up.

    >>> simulate(Serving(up=1.0), seed=0, queries=10)["answered"]
    1.0
    """
    random = generator(seed, "serving")
    shape = (queries, serving.parts)
    machines = random.binomial(serving.replicas, serving.up, shape)
    answered = (machines > 0).all(axis=1)
    seconds = _answers(serving, random, shape)
    second = _answers(serving, random, shape)  # drawn in any case, so that hedging is compared on the same draws
    requests = 1.0
    if serving.hedge_seconds is not None:
        hedged = (seconds > serving.hedge_seconds) & (machines > 1)
        seconds = np.where(hedged, np.minimum(seconds, serving.hedge_seconds + second), seconds)
        requests += float(hedged.mean())
    slowest = seconds.max(axis=1)[answered]
    quantiles = np.quantile(slowest, (0.5, 0.99, 0.999)) if len(slowest) else (np.nan,) * 3
    named = dict(zip(("p50", "p99", "p999"), map(float, quantiles), strict=True))
    return {"answered": float(answered.mean()), **named, "requests": requests}


def compare(serving: Serving, seed: int) -> dict[str, dict[str, float]]:
    """Run `simulate` without and with second requests, which go out when 95 % of the parts have answered.

    >>> sorted(compare(Serving(parts=2), seed=0))
    ['after 95 %', 'no']
    """
    random = generator(seed, "serving patience")
    patience = float(np.quantile(_answers(serving, random, (10_000, 1)), 0.95))
    return {
        "no": simulate(serving, seed),
        "after 95 %": simulate(replace(serving, hedge_seconds=patience), seed),
    }


def _answers(serving: Serving, random: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.float64]:
    late = np.where(random.random(shape) < serving.slow_share, serving.slow_factor, 1.0)
    seconds: NDArray[np.float64] = serving.usual_seconds * np.exp(serving.spread * random.standard_normal(shape)) * late
    return seconds
