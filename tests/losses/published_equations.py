"""Losses as their authors' released code computes them, in the authors' notation: loops, one
function a repository.

Repository, commit and file of each are in ``docs/reference/baselines.md``. ``labels``: (n, c) of 0
and 1. Where the authors have one modality, so have these.
"""

import itertools
import math

import numpy as np

from losses.baseline_equations import cosine, softplus


def talr(x, labels, gamma=1.0):
    """kunhe/TALR, apr_s_forward.m: the sum of AP over the queries; bins at 0, 2, …, k as in
    run_nuswide_AP.m.
    """
    n, k = x.shape
    phi = 2 / (1 + np.exp(-gamma * x)) - 1
    centres = range(0, k + 1, 2)
    total = 0.0
    for i in range(n):
        positive, count, n_positive = np.zeros(len(centres)), np.zeros(len(centres)), 0
        for j in range(n):
            if i == j:
                continue
            relevant = labels[i] @ labels[j] > 0
            n_positive += relevant
            distance = (k - phi[i] @ phi[j]) / 2
            pulse = np.array([max(0.0, 1 - abs(distance - centre) / 2) for centre in centres])
            count += pulse
            positive += pulse * relevant
        ap = 0.0
        for d in range(len(centres)):
            upper = positive[:d].sum() + positive[: d + 1].sum() + 1
            ap += positive[d] * upper / (count[:d].sum() + count[: d + 1].sum() + 1)
        total += ap / n_positive
    return total


def dsph(image, text, labels, proxies, threshold, alpha=0.8):
    """QinLab-WFU/DSPH, utils/utils.py, class HyP; alpha of utils/get_args.py; tanh of
    model/hash_model.py.
    """
    total, image, text = 0.0, np.tanh(image), np.tanh(text)
    for codes in (image, text):
        near = [
            1 - cosine(z, p) for z, y in zip(codes, labels, strict=True) for p in proxies[y == 1]
        ]
        far = [
            max(0.0, cosine(z, p) - threshold)
            for z, y in zip(codes, labels, strict=True)
            for p in proxies[y == 0]
        ]
        total += sum(near) / len(near) + sum(far) / len(far)
    several = [i for i in range(len(labels)) if labels[i].sum() > 1]
    apart = [(i, j) for i in several for j in several if labels[i] @ labels[j] == 0]
    for a, b in ((image, image), (text, text), (image, text)):
        if apart:
            total += sum(alpha * max(0.0, cosine(a[i], b[j]) - threshold) for i, j in apart) / len(
                apart
            )
    return total


def pairwise(outputs1, outputs2, labels1, labels2, sigmoid_param):
    """thuml/HashNet, pytorch/src/loss.py, pairwise_loss with class_num 1 as in pytorch/README.md;
    CSQ's is the same.
    """
    values = []
    for (a, y), (b, z) in itertools.product(
        zip(outputs1, labels1, strict=True), zip(outputs2, labels2, strict=True)
    ):
        dot = sigmoid_param * float(a @ b)
        values.append(math.log(1 + math.exp(dot)) - (1.0 if y @ z > 0 else 0.0) * dot)
    return sum(values) / len(values)


def csq(outputs, labels, centres, random_centre):
    """yuanli2333/Hadamard-Matrix-for-hashing, train.py; lambda0, lambda1, lambda2 of options.py: 1,
    0.2, 0.05.
    """
    y, entropies = np.tanh(outputs), []
    for code, label in zip(y, labels, strict=True):
        mean = centres[label == 1].mean(axis=0)
        centre = np.where(mean == 0, random_centre, np.sign(mean))
        h, target = 0.5 * (code + 1), 0.5 * (centre + 1)
        entropies.append(-(target * np.log(h) + (1 - target) * np.log(1 - h)).mean())
    half, k = len(y) // 2, y.shape[1]
    similarity = pairwise(y[:half], y[half:], labels[:half], labels[half:], 10 / k)
    return np.mean(entropies) + 0.2 * similarity + 0.05 * ((np.abs(y) - 1) ** 2).mean()


def dcmh(f, g, labels, gamma=1.0, eta=1.0):
    """jiangqy/DCMH-CVPR2017, process_DCMH.m, calc_loss of the whole training set, divided by n²."""
    n, total = len(f), 0.0
    for i, j in itertools.product(range(n), range(n)):
        theta = 0.5 * float(f[i] @ g[j])
        total += softplus(theta) - (1.0 if labels[i] @ labels[j] > 0 else 0.0) * theta
    b = np.sign(f + g)
    total += gamma * (((f - b) ** 2).sum() + ((g - b) ** 2).sum())
    total += eta * ((f.sum(axis=0) ** 2).sum() + (g.sum(axis=0) ** 2).sum())
    return total / n**2
