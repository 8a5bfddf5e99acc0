"""The losses written exactly as the equations are: loops over i and j, in float64. Slow on
purpose.
"""

import itertools

import torch
from torch import Tensor

from losses.baseline_equations import similarity

OutputsByModality = dict[str, Tensor]


def cosine(a: Tensor, b: Tensor) -> Tensor:
    lengths = a.norm() * b.norm()
    return (a @ b) / lengths if lengths > 0 else 0 * (a @ b)


def set_weight(s: float, alpha: float, beta: float) -> float:
    return beta if s == 0 else alpha if s == 1 else 1.0


def hamming(a: Tensor, b: Tensor) -> Tensor:
    return len(a) / 2 * (1 - cosine(a, b))


def quantization(outputs: OutputsByModality) -> Tensor:
    n, k = next(iter(outputs.values())).shape
    total = torch.zeros((), dtype=torch.float64)
    for i, bit in itertools.product(range(n), range(k)):
        target = 1.0 if sum(codes[i, bit].item() for codes in outputs.values()) >= 0 else -1.0
        for codes in outputs.values():
            total = total + (codes[i, bit] - target).abs()
    return total


def violations(
    outputs: OutputsByModality,
    others: OutputsByModality,
    similarities,
    bounds,
    gamma_l,
    alpha,
    beta,
) -> Tensor:
    """Sum over all pairs of a code with one of ``others``; ``similarities[i][j]`` is S of a pair of
    samples.
    """
    total = torch.zeros((), dtype=torch.float64)
    for codes, other_codes in itertools.product(outputs.values(), others.values()):
        for i, j in itertools.product(range(len(codes)), range(len(other_codes))):
            s, d = similarities[i][j], hamming(codes[i], other_codes[j])
            lower, upper = bounds(s)
            if max(lower - d, d - upper) > 0:
                total = total + (set_weight(s, alpha, beta) * max(lower - d, d - upper)) ** gamma_l
    return total


def channel_loss(outputs, labels, bounds, gamma_l, alpha, beta, kappa_q):
    n = len(labels)
    similarities = [[similarity(labels, i, j) for j in range(n)] for i in range(n)]
    total = violations(outputs, outputs, similarities, bounds, gamma_l, alpha, beta)
    return total / n**2 + kappa_q / n * quantization(outputs)


def dsch(outputs, labels, k, lambda_neg, tau, gamma_w, **weights):
    def bounds(s):
        p = lambda_neg * (1 - s) - s * tau
        return p, p + (1 - s) ** gamma_w * (k - lambda_neg - tau) + tau

    return channel_loss(outputs, labels, bounds, **weights)


def sch(outputs, labels, k, tau, **weights):
    def bounds(s):
        return (k / 2, k) if s == 0 else (k / 2 * (1 - s) - tau, k / 2 * (1 - s))

    return channel_loss(outputs, labels, bounds, gamma_l=1.0, **weights)


def bsch(outputs, labels, k, similarity_ratio, rho, **weights):
    n = len(labels)
    if similarity_ratio is None:
        every = [similarity(labels, i, j) for i in range(n) for j in range(n)]
        zeros = sum(s == 0 for s in every)
        similarity_ratio = sum(every) / zeros if zeros else float("inf")
    gap = min(rho * k / 2 * similarity_ratio, k / 2)
    return channel_loss(
        outputs, labels, lambda s: (k / 2 + gap, k) if s == 0 else (0, k / 2 * (1 - s)), **weights
    )


def tdsrdh(outputs, labels, anchor, alpha, beta, epsilon):
    a = outputs[anchor]
    others = [codes.detach() for name, codes in outputs.items() if name != anchor]
    n, k = a.shape
    pairwise = torch.zeros((), dtype=torch.float64)
    triplet = torch.zeros((), dtype=torch.float64)
    quantized = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        for bit in range(k):
            target = 1.0 if a[i, bit].item() + sum(o[i, bit].item() for o in others) >= 0 else -1.0
            quantized = quantized + (a[i, bit] - target) ** 2
        for o in others:
            for j in range(n):
                gamma = 0.5 * (a[i] @ o[j])
                related = 1.0 if similarity(labels, i, j) > 0 else 0.0
                pairwise = pairwise - (related * gamma - torch.log(1 + torch.exp(gamma)))
                if j != i:
                    gap = epsilon + ((a[i] - o[i]) ** 2).sum() - ((a[i] - o[j]) ** 2).sum()
                    if gap > 0:
                        triplet = triplet + gap
    return pairwise / n**2 + alpha * quantized / n + beta * triplet / n**2


def contrastive(outputs, labels, temperature):
    n = len(labels)
    terms = []
    for a, b in itertools.permutations(outputs.values(), 2):
        for i in range(n):
            compared = [j for j in range(n) if j == i or similarity(labels, i, j) < 1]
            logits = {j: cosine(a[i], b[j]) / temperature for j in compared}
            total = sum(torch.exp(value) for value in logits.values())
            terms.append(-torch.log(torch.exp(logits[i]) / total))
    return sum(terms) / len(terms)


def listwise(outputs, bits, similarities, scale):
    """``bits``: modality -> b_j, apart from the outputs so that each has a gradient of its own."""
    terms = []
    for a, b in list(itertools.permutations(outputs, 2)) or [(*outputs, *outputs)]:
        n, k = outputs[a].shape
        errors = []
        for i in range(n):
            items = [j for j in range(n) if a != b or j != i]
            total = sum(similarities[i][j] for j in items)
            if total > 0:
                question = torch.tanh(outputs[a][i])
                cosines = [question @ bits[b][j] / (question.norm() * k**0.5) for j in items]
                weights = [torch.exp(scale * value) for value in cosines]
                shares = [similarities[i][j] / total for j in items]
                logs = [torch.log(weight / sum(weights)) for weight in weights]
                errors.append(-sum(p * log for p, log in zip(shares, logs, strict=True)))
        terms.append(sum(errors) / max(len(errors), 1))
    return sum(terms) / len(terms)
