"""torchvision's classification models without their classifier."""

from collections.abc import Callable
from urllib.error import URLError

from torch import nn

from channelhash.errors import InputError, JobError
from channelhash.models.backbones import Normalize, load_weights, read_weights, weights_source
from channelhash.utils.torchvision_compat import torchvision
from channelhash.utils.typed_settings import unknown

#: Mean and standard deviation of ImageNet's pixels, as most of torchvision's classification weights want them.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load_torchvision(name: str, pretrained: str | None) -> tuple[nn.Module, int]:
    """Load an encoder of ``(n, 3, s, s)`` pixels (uint8, or floats in [0, 1]) to features below the classifier.

    Args:
        name: any classification model of torchvision, e.g. ``"resnet152"``.
        pretrained: a tag such as ``"IMAGENET1K_V2"``, a file with the model's weights (with or without the
            classifier), ``TAG@FILE``, or None for random weights.

    Returns:
        (encoder, width of its features).

    Raises:
        InputError: name or tag is unknown (the nearest one is named), or a file's weights do not fit.
        JobError: the weights cannot be fetched.
    """
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise InputError(unknown(f"model.backbone {name!r}", name, known))
    tag, file = weights_source(pretrained) if pretrained else (None, None)
    tags = [weights.name for weights in torchvision.models.get_model_weights(name)]
    if tag not in (None, "DEFAULT", *tags):
        raise InputError(unknown(f"model.pretrained {tag!r} of {name}", str(tag), tags))
    build: Callable[..., nn.Module] = torchvision.models.get_model
    try:
        model = build(name, weights=None if file else tag)
    except (URLError, OSError) as error:
        raise JobError(
            f"model.pretrained: {tag} of {name} cannot be fetched ({error}); fetch it elsewhere and give {tag}@FILE"
        ) from None
    classifier, width = _cut_classifier(model)
    if file:
        state = {key: value for key, value in read_weights(file).items() if not key.startswith(f"{classifier}.")}
        load_weights(model.state_dict(), state, f"{file} into {name}")
    mean, std = IMAGENET_MEAN, IMAGENET_STD
    if tag:
        preset = torchvision.models.get_model_weights(name)[tag].transforms()
        mean, std = tuple(preset.mean), tuple(preset.std)
    return nn.Sequential(Normalize(mean, std), model), width


def _cut_classifier(model: nn.Module) -> tuple[str, int]:
    """Remove the last linear layer; return its name and its number of inputs."""
    name, last = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear)][-1]
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())
    return name, last.in_features
