"""The figures as the equations define them, and by brute force over every order of ties. Slow on
purpose.
"""

from collections.abc import Iterator
from itertools import permutations, product

import numpy as np
from scipy.stats import hypergeom

# A query's database as groups of tied items, nearest first: [[True, False], …] says which are
# relevant.
Groups = list[list[bool]]


def histograms(groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    return np.array([[len(g) for g in groups]]), np.array([[sum(g) for g in groups]])


def orders(groups: list[list]) -> Iterator[list]:
    """Every ranking that respects the distances, each permutation of equal items as often as it
    occurs.
    """
    for parts in product(*[list(permutations(group)) for group in groups]):
        yield [item for part in parts for item in part]


def average_precision(ranking: list[bool], z: int | None = None) -> float:
    """eq. (lit:ap)."""
    z = len(ranking) if z is None else min(z, len(ranking))
    found, total = 0, 0.0
    for i in range(1, z + 1):
        if ranking[i - 1]:
            found += 1
            total += sum(ranking[:i]) / i
    return total / found if found else 0.0


def expected_average_precision_at(n: list[int], n_plus: list[int], z: int) -> float:
    """AP@z over the orders of ties, for groups too large to permute: the number of relevant items
    taken from the cut group is hypergeometric; given it, that group is one of its own, whole."""
    cut = next(d for d in range(len(n)) if sum(n[: d + 1]) >= z)
    taken = z - sum(n[:cut])
    total = 0.0
    for h in range(max(0, taken - (n[cut] - n_plus[cut])), min(n_plus[cut], taken) + 1):
        if sum(n_plus[:cut]) + h:
            chance = hypergeom(n[cut], n_plus[cut], taken).pmf(h)
            total += chance * tie_aware_average_precision([*n[:cut], taken], [*n_plus[:cut], h])
    return total


def label_similarity(a: np.ndarray, b: np.ndarray) -> float:
    """eq. (1): the cosine of two label sets, 0 if one is empty."""
    shared = sum(1 for x, y in zip(a, b, strict=True) if x and y)
    return shared / float(np.sqrt(float(a.sum()) * float(b.sum()))) if shared else 0.0


def ndcg(gains: list[float]) -> float:
    def dcg(ranking: list[float]) -> float:
        return sum(gain / np.log2(1 + rank) for rank, gain in enumerate(ranking, start=1))

    return dcg(gains) / dcg(sorted(gains, reverse=True))


def literal_recall(query, items, pairs, similarity) -> dict:
    """Expected Recall@1, 5, 10 and rank of the first counterpart; ties are in every order."""
    found, ranks = {k: [] for k in (1, 5, 10)}, []
    for row, own in enumerate(pairs):
        values = [similarity(query[row], item) for item in items]
        best = max(values[item] for item in own)
        ahead, tied = sum(v > best for v in values), sum(v == best for v in values)
        same = sum(values[item] == best for item in own)
        ranks.append(ahead + (tied + 1) / (same + 1))
        for k in found:
            missed = 1.0
            for place in range(min(max(k - ahead, 0), tied)):
                missed *= max(tied - same - place, 0) / (tied - place)
            found[k].append(1 - missed)
    return {
        "recall_at": {str(k): np.mean(v) for k, v in found.items()},
        "median_rank": np.median(ranks),
    }


def lookup(ranking: list[bool], distances: list[int], radius: int) -> tuple[float, float, bool]:
    """Precision (0 if nothing is found), recall, and whether nothing is found, within a radius."""
    found = [hit for hit, distance in zip(ranking, distances, strict=True) if distance <= radius]
    return (sum(found) / len(found) if found else 0.0), sum(found) / sum(ranking), not found


def tie_aware_average_precision(n: list[int], n_plus: list[int]) -> float:
    """eq. (tmap:ap), term by term."""
    total, before, relevant_before = 0.0, 0, 0
    for items, relevant in zip(n, n_plus, strict=True):
        for t in range(items):
            others = t * (relevant - 1) / (items - 1) if items > 1 else 0.0
            total += relevant / items * (1 + relevant_before + others) / (1 + t + before)
        before, relevant_before = before + items, relevant_before + relevant
    return total / sum(n_plus)
