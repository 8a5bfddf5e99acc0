"""Losses as their authors' released code computes them, in the authors' notation: loops, one function a repository.

Repository, commit and file of each are in ``docs/reference/baselines.md``. ``labels``: (n, c) of 0 and 1. Where the
authors have one modality, so have these.
"""

import itertools
import math

import numpy as np

from losses.baseline_equations import cosine, softmax_entropy, softplus


def talr(x, labels, gamma=1.0):
    """kunhe/TALR, apr_s_forward.m: the sum of AP over the queries; bins at 0, 2, …, k as in run_nuswide_AP.m."""
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
    """QinLab-WFU/DSPH, utils/utils.py, class HyP; alpha of utils/get_args.py; tanh of model/hash_model.py."""
    total, image, text = 0.0, np.tanh(image), np.tanh(text)
    for codes in (image, text):
        near = [
            1 - cosine(z, p)
            for z, y in zip(codes, labels, strict=True)
            for p, has in zip(proxies, y, strict=True)
            if has
        ]
        far = [
            max(0.0, cosine(z, p) - threshold)
            for z, y in zip(codes, labels, strict=True)
            for p, has in zip(proxies, y, strict=True)
            if not has
        ]
        total += sum(near) / len(near) + sum(far) / len(far)
    several = [i for i in range(len(labels)) if labels[i].sum() > 1]
    apart = [(i, j) for i in several for j in several if labels[i] @ labels[j] == 0]
    for a, b in ((image, image), (text, text), (image, text)):
        if apart:
            total += sum(alpha * max(0.0, cosine(a[i], b[j]) - threshold) for i, j in apart) / len(apart)
    return total


def pairwise(outputs1, outputs2, labels1, labels2, sigmoid_param):
    """thuml/HashNet, pytorch/src/loss.py, pairwise_loss with class_num 1 as in pytorch/README.md; CSQ's is the same."""
    values = []
    for (a, y), (b, z) in itertools.product(zip(outputs1, labels1, strict=True), zip(outputs2, labels2, strict=True)):
        dot = sigmoid_param * float(a @ b)
        values.append(math.log(1 + math.exp(dot)) - (1.0 if y @ z > 0 else 0.0) * dot)
    return sum(values) / len(values)


def csq(outputs, labels, centres, random_centre):
    """yuanli2333/Hadamard-Matrix-for-hashing, train.py; lambda0, lambda1, lambda2 of options.py: 1, 0.2, 0.05."""
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


def orthohash(codes, labels, codebook, s=8.0, m=0.2):
    """kamwoh/orthohash, functions/loss/orthohash.py, label_smoothing with margin cos."""
    values = []
    for code, label in zip(codes, labels, strict=True):
        logits = [s * (cosine(code, centre) - m * y) for centre, y in zip(codebook, label, strict=True)]
        values.append(softmax_entropy(logits, label / label.sum()))
    return np.mean(values)


def greedyhash(feature, classes, weight):
    """ssppp/GreedyHash, cifar1.py: one class an image."""
    one_hot = np.eye(len(weight))[classes]
    entropies = [softmax_entropy(list(weight @ np.sign(x)), y) for x, y in zip(feature, one_hot, strict=True)]
    return np.mean(entropies) + 0.1 * np.mean(np.abs((np.abs(feature) - 1) ** 3))


def idhn(hidden, labels, alpha=0.1, belta=5.0, gama=0.1):
    """pectinid16/IDHN, train.py, hashing_loss; alpha, belta, gama are its names and defaults."""
    d, m = hidden / (1 + np.abs(hidden)), hidden.shape[1]
    values = []
    for (a, y), (b, z) in itertools.product(zip(d, labels, strict=True), repeat=2):
        similarity, distance = y @ z / math.sqrt(y.sum() * z.sum()), float(a @ b)
        soft = 0.0 if similarity > 0.99 else similarity
        scaled = belta * distance / m
        hard = math.log(1 + math.exp(scaled)) - similarity * scaled
        values.append(hard if soft < 0.01 else gama * m * ((distance + m) / 2 / m - similarity) ** 2)
    return np.mean(values) + alpha * np.mean(np.abs(np.abs(d) - 1))


def dnph(image, text, labels, proxies, noise_of, mrg=1.0):
    """QinLab-WFU/OUR-DNPH, utils/utils.py and train/hash_train.py, without d_loss; ``noise_of``: π's codes."""
    values, proxies = [], [p / np.linalg.norm(p) for p in proxies]
    image, text = np.tanh(image), np.tanh(text)
    for code, label in [*zip(image, labels, strict=True), *zip(text, labels, strict=True)]:
        unit = code / np.linalg.norm(code)
        logits = [-(((unit - p) ** 2).sum() + mrg * y) for p, y in zip(proxies, label, strict=True)]
        values.append(softmax_entropy(logits, label))
    noise = sum(np.mean([c @ u for c, u in zip(codes, noise_of(codes), strict=True)]) for codes in (image, text))
    return np.mean(values) - 0.1 * noise


def qsmi(image, text, labels):
    """QinLab-WFU/DNpH, utils/qmi_loss.py with its defaults; tanh of model/hash_model.py."""
    image, text = ((codes := np.tanh(z)) / np.linalg.norm(codes, axis=1, keepdims=True) for z in (image, text))
    d = (labels @ labels.T > 0).astype(float)
    m = d.shape[1] ** 2 / d.sum()
    kernels = [0.5 * (a @ b.T + 1) for a, b in ((image, image), (text, text), (image, text))]
    return sum(((d * y - 1) ** 2 + (1.0 / m) * y**2).sum() for y in kernels)


def dcgh(image, text, labels, proxies):
    """donnotnormal/DCGH, utils/utils.py, class HyP; tanh of model/hash_model.py."""

    def unit(x):
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    image, text, proxies = unit(np.tanh(image)), unit(np.tanh(text)), unit(proxies)
    wanted = unit(labels) @ unit(labels).T
    several = np.flatnonzero(labels.sum(axis=1) > 1)
    apart = labels[several] @ labels[several].T == 0
    total = 0.0
    for codes in (image, text):
        cos = codes @ proxies.T
        total += (1 - cos)[labels == 1].mean() + np.maximum(cos, 0)[labels == 0].mean()
        total += np.where(labels == 1, 1 - cos, 0).var(axis=1, ddof=1).mean()
    for a, b in ((image, image), (text, text), (image, text)):
        total += 0.05 * np.maximum(wanted - a @ b.T, 0)[wanted > 0].mean()
        total += 0.8 * np.maximum(a[several] @ b[several].T, 0)[apart].mean()
    return total
