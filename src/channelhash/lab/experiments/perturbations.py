"""Perturbations of queries by a given size: corrupted images, noise of tags, and a bounded adversarial change."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from channelhash.models.hash_model import Branch
from channelhash.text.augmentation import drop_tokens, replace_tokens
from channelhash.utils.image_files import open_image
from channelhash.utils.seeds import generator
from channelhash.utils.torchvision_compat import functional

# Images whose gradients are computed together.
_BATCH = 64


class Perturbation(NamedTuple):
    """A kind of perturbation, and the sizes at which it is measured, from small to large.

    ``apply`` takes the inputs of a branch, a size and a seed, and returns inputs of the same shape.
    """

    apply: Callable[[Tensor, float, int], Tensor]
    sizes: Sequence[float]


def add_noise(pixels: Tensor, sigma: float, seed: int) -> Tensor:
    """Add normal noise of standard deviation ``sigma``, cut to [0, 1].

    >>> add_noise(torch.full((1, 3, 2, 2), 0.5), 0.0, seed=0).unique().tolist()
    [0.5]
    """
    noise = generator(seed, "image noise").standard_normal(pixels.shape, dtype=np.float32)
    return (pixels + sigma * torch.from_numpy(noise)).clamp(0, 1)


def blur(pixels: Tensor, share: float, seed: int = 0) -> Tensor:
    """Blur by a Gaussian whose standard deviation is ``share`` of the image's side.

    >>> blur(torch.full((1, 3, 8, 8), 0.5), 0.25).isclose(torch.tensor(0.5)).all().item()
    True
    """
    sigma = share * pixels.shape[-1]
    width = min(2 * int(np.ceil(3 * sigma)) + 1, 2 * pixels.shape[-1] - 1)
    blurred: Tensor = functional.gaussian_blur(pixels, [width, width], [sigma, sigma])
    return blurred


def lower_contrast(pixels: Tensor, factor: float, seed: int = 0) -> Tensor:
    """Move each image to its mean grey, of which it keeps ``factor`` of the distance.

    >>> lower_contrast(torch.rand(1, 3, 4, 4), 0.0).std().item() < 1e-6
    True
    """
    changed: Tensor = functional.adjust_contrast(pixels, factor)
    return changed


def pixelate(pixels: Tensor, side: float, seed: int = 0) -> Tensor:
    """Replace squares of ``side`` of the image's side by their mean.

    >>> len(pixelate(torch.rand(1, 1, 8, 8), 0.5).unique())
    4
    """
    n = round(1 / side)
    means = torch.nn.functional.adaptive_avg_pool2d(pixels, n)
    return torch.nn.functional.interpolate(means, size=pixels.shape[-2:], mode="nearest")


def compress(pixels: Tensor, quality: float, seed: int = 0) -> Tensor:
    """Write as JPEG of this quality, 1 … 95, and read again.

    >>> compress(torch.full((1, 3, 8, 8), 1.0), 10).unique().tolist()
    [1.0]
    """
    rows = []
    for image in (255 * pixels).round().byte().permute(0, 2, 3, 1).numpy():
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=round(quality))
        rows.append(np.asarray(open_image(file)))
    return torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).float() / 255


def occlude(pixels: Tensor, side: float, seed: int) -> Tensor:
    """Cover a grey square of ``side`` of the image's side, at a place drawn for each image.

    >>> occlude(torch.ones(1, 3, 8, 8), 0.5, seed=0).mean().item()  # a quarter is 0.5
    0.875
    """
    height, width = pixels.shape[-2:]
    rows, columns = round(side * height), round(side * width)
    places = generator(seed, "occlusion").random((len(pixels), 2))
    covered = pixels.clone()
    for image, (y, x) in zip(covered, places.tolist(), strict=True):
        top, left = round(y * (height - rows)), round(x * (width - columns))
        image[:, top : top + rows, left : left + columns] = 0.5
    return covered


#: Changes of pixels ``(n, 3, s, s)`` in [0, 1].
CORRUPTIONS: Mapping[str, Perturbation] = {
    "noise, σ": Perturbation(add_noise, (0.05, 0.1, 0.2)),
    "blur, σ by side": Perturbation(blur, (1 / 64, 1 / 32, 1 / 16)),
    "contrast kept": Perturbation(lower_contrast, (0.5, 0.25, 0.1)),
    "pixelation, by side": Perturbation(pixelate, (1 / 32, 1 / 16, 1 / 8)),
    "JPEG, quality": Perturbation(compress, (30, 15, 5)),
    "occlusion, by side": Perturbation(occlude, (0.25, 0.5, 0.75)),
}


def _dropped(tokens: Tensor, share: float, seed: int) -> Tensor:
    return torch.from_numpy(drop_tokens(tokens.numpy(), range(len(tokens)), seed, 0, share))


def _replaced(tokens: Tensor, share: float, seed: int) -> Tensor:
    known = np.unique(tokens[tokens != 0].numpy())
    return torch.from_numpy(replace_tokens(tokens.numpy(), range(len(tokens)), seed, 0, share, known))


#: Changes of token ids ``(n, m)``, 0 for padding: a text keeps a tag, and those that replace others are of other texts.
TAG_NOISE: Mapping[str, Perturbation] = {
    "tags dropped": Perturbation(_dropped, (0.25, 0.5, 0.75)),
    "tags replaced": Perturbation(_replaced, (0.25, 0.5, 0.75)),
}
#: Largest change of a pixel by `attack`, in 255ths.
ATTACKS = (1, 2, 4)


def attack(branch: Branch, pixels: Tensor, epsilon: float, steps: int = 10) -> Tensor | None:
    """Change each pixel by at most ``epsilon``, so that the code of an image moves away from what it was.

    Projected gradient descent (Madry et al., ICLR 2018): steps of 2.5 ε / ``steps`` along the sign of the gradient of
    −mean_j b_j tanh z_j, for the outputs z and the code b of the image as it is. The attacker knows the model, and no
    label.

    Args:
        branch: of images, in evaluation mode.
        pixels: ``(n, 3, s, s)`` in [0, 1].
        epsilon: ε > 0, of the same unit.
        steps: number of steps.

    Returns:
        Pixels likewise; None where the encoder gives no gradient (networks that ONNX Runtime runs).

    >>> branch = Branch(torch.tensor, torch.nn.Flatten(), torch.nn.Linear(12, 8))
    >>> pixels = torch.full((1, 3, 2, 2), 0.5)
    >>> changed = attack(branch, pixels, epsilon=0.1)
    >>> ((changed - pixels).abs() <= 0.1 + 1e-6).all().item()
    True
    """
    encoder = branch.frozen.encoder if branch.frozen else branch.encoder
    rows = []
    for clean in torch.split(pixels, _BATCH):
        with torch.no_grad():
            signs = torch.where(branch(clean) >= 0, 1.0, -1.0)
        changed = clean.clone()
        for _ in range(steps):
            changed.requires_grad_()
            agreement = (signs * torch.tanh(branch.head(encoder(changed)))).mean()
            if not agreement.requires_grad:
                return None
            (slope,) = torch.autograd.grad(agreement, changed, allow_unused=True)
            if slope is None:
                return None
            stepped = changed.detach() - 2.5 * epsilon / steps * slope.sign()
            changed = stepped.clamp(clean - epsilon, clean + epsilon).clamp(0, 1)
        rows.append(changed.detach())
    return torch.cat(rows)
