"""The losses written exactly as the equations are: loops over i and j, in float64. Slow on purpose."""

import torch
from torch import Tensor

Outputs = dict[str, Tensor]


def cosine(a: Tensor, b: Tensor) -> Tensor:
    lengths = a.norm() * b.norm()
    return (a @ b) / lengths if lengths > 0 else 0 * (a @ b)


def similarity(labels: Tensor, i: int, j: int) -> float:
    if i == j:
        return 1.0
    same = sum(1 for a, b in zip(labels[i], labels[j], strict=True) if a and b)
    size_i, size_j = int(labels[i].sum()), int(labels[j].sum())
    return 0.0 if same == 0 else same / (size_i * size_j) ** 0.5


def set_weight(s: float, alpha: float, beta: float) -> float:
    return beta if s == 0 else alpha if s == 1 else 1.0


def hamming(a: Tensor, b: Tensor) -> Tensor:
    return len(a) / 2 * (1 - cosine(a, b))


def quantization(outputs: Outputs) -> Tensor:
    n, k = next(iter(outputs.values())).shape
    total = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        for bit in range(k):
            target = 1.0 if sum(codes[i, bit].item() for codes in outputs.values()) >= 0 else -1.0
            for codes in outputs.values():
                total = total + (codes[i, bit] - target).abs()
    return total


def dsch(outputs, labels, k, lambda_neg, tau, gamma_w, gamma_l, alpha, beta, kappa_q):
    n = len(labels)
    total = torch.zeros((), dtype=torch.float64)
    for codes_i in outputs.values():
        for codes_j in outputs.values():
            for i in range(n):
                for j in range(n):
                    s = similarity(labels, i, j)
                    w = (1 - s) ** gamma_w * (k - lambda_neg - tau) + tau
                    p = lambda_neg * (1 - s) - s * tau
                    d = hamming(codes_i[i], codes_j[j])
                    violation = max(0.0, (p - d).item(), (d - (p + w)).item())
                    if violation > 0:
                        signed = (p - d) if p - d > d - (p + w) else d - (p + w)
                        total = total + (set_weight(s, alpha, beta) * signed) ** gamma_l
    return total / n**2 + kappa_q / n * quantization(outputs)


def dsch_by_modality(outputs, labels, k, lambda_neg, tau, gamma_w, gamma_l, alpha, beta, kappa_q):
    """`dsch` with labels of each modality's own; bits are drawn together where those of a sample are the same."""
    n = len(next(iter(labels.values())))
    total = torch.zeros((), dtype=torch.float64)
    for name_i, codes_i in outputs.items():
        for name_j, codes_j in outputs.items():
            for i in range(n):
                for j in range(n):
                    y_i, y_j = labels[name_i][i].double(), labels[name_j][j].double()
                    s = 1.0 if i == j and y_i.tolist() == y_j.tolist() else cosine(y_i, y_j).item()
                    s = 1.0 if abs(1 - s) < 1e-12 else s
                    w = (1 - s) ** gamma_w * (k - lambda_neg - tau) + tau
                    p = lambda_neg * (1 - s) - s * tau
                    d = hamming(codes_i[i], codes_j[j])
                    if d < p:
                        total = total + (set_weight(s, alpha, beta) * (p - d)) ** gamma_l
                    elif d > p + w:
                        total = total + (set_weight(s, alpha, beta) * (d - p - w)) ** gamma_l
    quantized = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        for name, codes in outputs.items():
            alike = [other for other in outputs if labels[other][i].tolist() == labels[name][i].tolist()]
            for bit in range(k):
                target = 1.0 if sum(outputs[other][i, bit].item() for other in alike) >= 0 else -1.0
                quantized = quantized + (codes[i, bit] - target).abs()
    return total / n**2 + kappa_q / n * quantized


def sch(outputs, labels, k, tau, alpha, beta, kappa_q):
    n = len(labels)
    total = torch.zeros((), dtype=torch.float64)
    for codes_i in outputs.values():
        for codes_j in outputs.values():
            for i in range(n):
                for j in range(n):
                    s = similarity(labels, i, j)
                    lower = k / 2 if s == 0 else k / 2 * (1 - s) - tau
                    upper = k if s == 0 else k / 2 * (1 - s)
                    d = hamming(codes_i[i], codes_j[j])
                    if d < lower:
                        total = total + set_weight(s, alpha, beta) * (lower - d)
                    elif d > upper:
                        total = total + set_weight(s, alpha, beta) * (d - upper)
    return total / n**2 + kappa_q / n * quantization(outputs)


def bsch(outputs, labels, k, similarity_ratio, rho, gamma_l, alpha, beta, kappa_q):
    n = len(labels)
    if similarity_ratio is None:
        every = [similarity(labels, i, j) for i in range(n) for j in range(n)]
        zeros = sum(s == 0 for s in every)
        similarity_ratio = sum(every) / zeros if zeros else float("inf")
    gap = min(rho * k / 2 * similarity_ratio, k / 2)
    total = torch.zeros((), dtype=torch.float64)
    for codes_i in outputs.values():
        for codes_j in outputs.values():
            for i in range(n):
                for j in range(n):
                    s = similarity(labels, i, j)
                    d = hamming(codes_i[i], codes_j[j])
                    signed = (k / 2 + gap) - d if s == 0 else d - k / 2 * (1 - s)
                    if signed > 0:
                        total = total + (set_weight(s, alpha, beta) * signed) ** gamma_l
    return total / n**2 + kappa_q / n * quantization(outputs)


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
    for a, codes_a in outputs.items():
        for b, codes_b in outputs.items():
            if a == b:
                continue
            for i in range(n):
                logits = {
                    j: cosine(codes_a[i], codes_b[j]) / temperature
                    for j in range(n)
                    if j == i or similarity(labels, i, j) < 1
                }
                total = sum(torch.exp(value) for value in logits.values())
                terms.append(-torch.log(torch.exp(logits[i]) / total))
    return sum(terms) / len(terms)
