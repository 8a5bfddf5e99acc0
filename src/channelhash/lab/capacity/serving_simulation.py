"""Searches over an index in parts with replicas: how often a part is gone, and how long the slowest answers take."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from channelhash.utils.seeds import generator


@dataclass(frozen=True)
class Serving:
    """Attributes:
    parts: parts of the index; a query needs the answer of each.
    replicas: machines that hold a part.
    up: share of time that a machine answers.
    usual_seconds: median time of an answer.
    spread: standard deviation of the logarithm of that time.
    slow_share: share of answers that come late (a pause of the machine, a queue).
    slow_factor: how much longer those take.
    hedge_seconds: a part that has not answered by then is asked a second time, at another replica; None: never.
    """

    parts: int = 8
    replicas: int = 2
    up: float = 0.999
    usual_seconds: float = 0.02
    spread: float = 0.3
    slow_share: float = 0.01
    slow_factor: float = 20
    hedge_seconds: float | None = None


def simulate(serving: Serving, seed: int, queries: int = 100_000) -> dict[str, float]:
    """Time of a query, that of its slowest part, where all parts answer.

    Returns:
        ``{"answered": share of queries whose parts all have a machine, "p50": s, "p99": s, "p999": s, "requests":
        requests a part and query}``. A second request needs a second machine that is up.
    """
    random = generator(seed, "serving")
    shape = (queries, serving.parts)
    machines = random.binomial(serving.replicas, serving.up, shape)
    answered = (machines > 0).all(axis=1)
    seconds = _answers(serving, random, shape)
    second = _answers(serving, random, shape)  # drawn in any case, so that hedging is compared on the same draws
    requests = 1.0
    if serving.hedge_seconds is not None:
        asked = (seconds > serving.hedge_seconds) & (machines > 1)
        seconds = np.where(asked, np.minimum(seconds, serving.hedge_seconds + second), seconds)
        requests += float(asked.mean())
    whole = seconds.max(axis=1)[answered]
    quantiles = np.quantile(whole, (0.5, 0.99, 0.999)) if len(whole) else (np.nan,) * 3
    named = dict(zip(("p50", "p99", "p999"), map(float, quantiles), strict=True))
    return {"answered": float(answered.mean()), **named, "requests": requests}


def compare(serving: Serving, seed: int) -> dict[str, dict[str, float]]:
    """`simulate` without and with second requests; these go out where 95 % of the parts have answered."""
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
