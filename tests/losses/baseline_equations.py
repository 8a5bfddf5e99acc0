"""The losses of the literature and RSCH, as their equations are written: NumPy, loops over i, j and
bits. Slow on purpose.

``batch``: modality -> (n, k) array; ``labels``: (n, c) of 0 and 1. An item is (modality, sample).
"""

import itertools
import math

import numpy as np

from metrics.ranking_equations import label_similarity


def items(batch):
    """(code, sample) of every item, modality by modality."""
    return [(codes[i], i) for codes in batch.values() for i in range(len(codes))]


def similarity(labels, i, j):
    return 1.0 if i == j else label_similarity(labels[i], labels[j])


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sign(x):
    return 1.0 if x >= 0 else -1.0


def dcmh(batch, labels, gamma, eta):
    everything = items(batch)
    total = 0.0
    for (a, i), (b, j) in itertools.product(everything, everything):
        theta = 0.5 * sum(x * y for x, y in zip(a, b, strict=True))
        total -= (1.0 if similarity(labels, i, j) > 0 else 0.0) * theta - softplus(theta)
    n, k = next(iter(batch.values())).shape
    for i, bit in itertools.product(range(n), range(k)):
        code = sign(sum(codes[i, bit] for codes in batch.values()))
        total += gamma * sum((code - codes[i, bit]) ** 2 for codes in batch.values())
    for codes in batch.values():
        total += eta * sum(sum(codes[i, bit] for i in range(n)) ** 2 for bit in range(k))
    return total / len(everything) ** 2


def hashnet(batch, labels, alpha, beta):
    everything = [(np.tanh(beta * code), i) for code, i in items(batch)]
    pairs = list(itertools.product(everything, everything))
    n_similar = sum(similarity(labels, i, j) > 0 for (_, i), (_, j) in pairs)
    total = 0.0
    for (a, i), (b, j) in pairs:
        x = alpha * float(a @ b)
        if similarity(labels, i, j) > 0:
            union = sum(1 for p, q in zip(labels[i], labels[j], strict=True) if p or q)
            jaccard = float(labels[i] @ labels[j]) / union if union else 1.0
            total += jaccard * len(pairs) / n_similar * (softplus(x) - x)
        else:
            total += len(pairs) / (len(pairs) - n_similar) * softplus(x)
    return total / len(pairs)


def idhn(batch, labels, alpha, gamma, lambda_q):
    everything = [(code / (1 + np.abs(code)), i) for code, i in items(batch)]
    k = len(everything[0][0])
    terms = []
    for (a, i), (b, j) in itertools.product(everything, everything):
        s, inner = similarity(labels, i, j), float(a @ b)
        omega = alpha / k * inner
        hard = math.log(1 + math.exp(omega)) - s * omega
        terms.append(hard if s in (0, 1) else gamma * k * ((inner + k) / (2 * k) - s) ** 2)
    quantization = [abs(abs(value) - 1) for code, _ in everything for value in code]
    return np.mean(terms) + lambda_q * np.mean(quantization)


def csq(batch, labels, centres, tie_break, lambda_q):
    entropies, quantization = [], []
    for code, i in items(batch):
        for bit, value in enumerate(code):
            h = (1 + math.tanh(value)) / 2
            quantization.append(math.log(math.cosh(abs(2 * h - 1) - 1)))
            if not labels[i].any():
                continue
            votes = sum(centres[y][bit] for y in range(len(centres)) if labels[i][y])
            centre = tie_break[bit] if votes == 0 else sign(votes)
            entropies.append(-math.log(h) if centre > 0 else -math.log(1 - h))
    return (np.mean(entropies) if entropies else 0.0) + lambda_q * np.mean(quantization)


def softmax_entropy(logits, target):
    total = sum(math.exp(logit) for logit in logits)
    return -sum(
        t * math.log(math.exp(logit) / total) for t, logit in zip(target, logits, strict=True)
    )


def orthohash(batch, labels, centres, s, m):
    values = []
    for code, i in items(batch):
        if labels[i].any():
            cosines = [
                float(code @ o) / (np.linalg.norm(code) * np.linalg.norm(o)) for o in centres
            ]
            logits = [s * (cos - m * y) for cos, y in zip(cosines, labels[i], strict=True)]
            values.append(softmax_entropy(logits, labels[i] / labels[i].sum()))
    return np.mean(values) if values else 0.0


def greedyhash(batch, labels, classifier, alpha):
    entropies, penalty = [], []
    for code, i in items(batch):
        penalty += [abs(abs(value) - 1) ** 3 for value in code]
        if labels[i].any():
            bits = [sign(value) for value in code]
            logits = [sum(w * b for w, b in zip(row, bits, strict=True)) for row in classifier]
            entropies.append(softmax_entropy(logits, labels[i] / labels[i].sum()))
    return (np.mean(entropies) if entropies else 0.0) + alpha * np.mean(penalty)


def cosine(a, b):
    return float(a @ b) / (np.linalg.norm(a) * np.linalg.norm(b))


def mean(values):
    return sum(values) / len(values) if values else 0.0


def hyp2(batch, labels, proxies, beta, zeta):
    everything = items(batch)
    near = [1 - cosine(z, p) for z, i in everything for j, p in enumerate(proxies) if labels[i][j]]
    far = [
        max(0.0, cosine(z, p) - zeta)
        for z, i in everything
        for j, p in enumerate(proxies)
        if not labels[i][j]
    ]
    irrelevant = [
        max(0.0, cosine(a, b) - zeta)
        for (a, i), (b, j) in itertools.product(everything, everything)
        if labels[i].sum() > 1 and labels[j].sum() > 1 and labels[i] @ labels[j] == 0
    ]
    return mean(near) + mean(far) + beta * mean(irrelevant)


def pairs_of_modalities(batch):
    return itertools.combinations_with_replacement(batch.values(), 2)


def qsmi(batch, labels):
    n = len(labels)
    similar = [[similarity(labels, i, j) > 0 for j in range(n)] for i in range(n)]
    share = np.mean(similar)
    values = []
    for first, second in pairs_of_modalities(batch):
        for i, j in itertools.product(range(n), range(n)):
            y = (1 + cosine(np.tanh(first[i]), np.tanh(second[j]))) / 2
            values.append((similar[i][j] * y - 1) ** 2 + share * y**2)
    return np.mean(values)


def dcgh(batch, labels, proxies, alpha, beta, gamma):
    n, total = len(labels), 0.0
    everything = list(itertools.product(range(n), range(n)))
    for codes in batch.values():
        c = [[cosine(np.tanh(z), p) for p in proxies] for z in codes]
        total += mean([1 - c[i][j] for i in range(n) for j in range(len(proxies)) if labels[i][j]])
        total += mean(
            [max(0.0, c[i][j]) for i in range(n) for j in range(len(proxies)) if not labels[i][j]]
        )
        missing = [[y * (1 - v) for y, v in zip(labels[i], c[i], strict=True)] for i in range(n)]
        total += gamma * mean([np.var(row, ddof=1) for row in missing])
    for first, second in pairs_of_modalities(batch):
        d = {(i, j): cosine(np.tanh(first[i]), np.tanh(second[j])) for i, j in everything}
        several = [(i, j) for i, j in everything if min(labels[i].sum(), labels[j].sum()) > 1]
        total += beta * mean([max(0.0, d[i, j]) for i, j in several if labels[i] @ labels[j] == 0])
        graded = [(similarity(labels, i, j), d[i, j]) for i, j in everything]
        total += alpha * mean([max(0.0, s - value) for s, value in graded if s > 0])
    return total


def dnph(batch, labels, proxies, drawn, delta, lambda_u):
    """``drawn``: the random codes; every order of them is tried, so n is small."""
    to_proxies, agreement = [], 0.0
    for codes in batch.values():
        bounded = np.tanh(codes)
        for code, y in zip(bounded, labels, strict=True):
            squared = [
                sum((code / np.linalg.norm(code) - p / np.linalg.norm(p)) ** 2) + delta * has
                for p, has in zip(proxies, y, strict=True)
            ]
            to_proxies.append(softmax_entropy([-d for d in squared], y))
        orders = itertools.permutations(range(len(drawn)))
        best = min(
            orders,
            key=lambda order: sum(
                np.linalg.norm(bounded[i] - drawn[o]) for i, o in enumerate(order)
            ),
        )
        agreement += mean([float(bounded[i] @ drawn[o]) for i, o in enumerate(best)])
    return mean(to_proxies) - lambda_u * agreement


def talr(batch, labels, alpha):
    """AP_r with triangular pulses around 0 … k, a ranking for each query and modality that is
    searched.
    """
    values = []
    for (asked, queries), (searched, database) in itertools.product(batch.items(), repeat=2):
        for i, query in enumerate(queries):
            k = len(query)
            total, positive = np.zeros(k + 1), np.zeros(k + 1)
            n_relevant = 0
            for j, other in enumerate(database):
                if asked == searched and i == j:
                    continue
                relevant = similarity(labels, i, j) > 0
                n_relevant += relevant
                d = (k - float(np.tanh(alpha * query) @ np.tanh(alpha * other))) / 2
                for whole in range(k + 1):
                    pulse = max(0.0, 1 - abs(d - whole))
                    total[whole] += pulse
                    positive[whole] += pulse * relevant
            if n_relevant:
                precision = 0.0
                for d in range(k + 1):
                    before, up_to = positive[:d].sum(), positive[: d + 1].sum()
                    precision += (
                        positive[d]
                        * (before + up_to + 1)
                        / (total[:d].sum() + total[: d + 1].sum() + 1)
                    )
                values.append(precision / n_relevant)
    return 1 - mean(values)


def sch_original(batch, labels, tau, alpha, beta):
    total, n = 0.0, len(labels)
    for first, second in itertools.product(batch.values(), repeat=2):
        below, above, k = [], [], first.shape[1]
        for i, j in itertools.product(range(n), range(n)):
            s = similarity(labels, i, j)
            d = (k - float(np.tanh(first[i]) @ np.tanh(second[j]))) / 2
            weight = beta if s == 0 else alpha if s == 1 else 1.0
            low = k / 2 if s == 0 else max(0.0, k / 2 * (1 - s) - tau)
            high = k if s == 0 else k / 2 * (1 - s)
            below.append(weight * max(0.0, low - d))
            above.append(weight * max(0.0, d - high))
        total += math.sqrt(sum(v * v for v in below)) + math.sqrt(sum(v * v for v in above))
    return total / n**2


def rsch(batch, labels, kappa_q):
    n, total, k = len(labels), 0.0, next(iter(batch.values())).shape[1]
    for first, second in itertools.product(batch.values(), repeat=2):
        similar, dissimilar = [], []
        for i, j in itertools.product(range(n), range(n)):
            s = similarity(labels, i, j)
            d = (k - float(np.tanh(first[i]) @ np.tanh(second[j]))) / 2
            if s > 0:
                similar.append(max(0.0, d - k / 2 * (1 - s)))
            else:
                dissimilar.append(max(0.0, k / 2 - d))
        for violations in (similar, dissimilar):
            if violations:
                total += (
                    math.sqrt(sum(v * v for v in violations) / len(violations)) / len(batch) ** 2
                )
    for i, bit in itertools.product(range(n), range(k)):
        values = [math.tanh(codes[i, bit]) for codes in batch.values()]
        total += kappa_q / n * sum(abs(value - sign(sum(values))) for value in values)
    return total
