"""What a run has otherwise than the paper's runs: named beside its numbers, or reason enough not to compare."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from channelhash.config import make_config
from channelhash.lab.experiments.base import PAPER_KINDS, PAPER_PRESETS, Sections, paper_configuration
from channelhash.models.backbones import split_source

#: What the published code has otherwise than the protocol's defaults (``docs/explanation/paper-notes.md``).
_PUBLISHED_CODE: Sections = {
    "model": {"frozen_batchnorm": "train", "mask_padding": False},
    "train": {"easy_weights": "angles"},
}
#: Keys that say where things lie, how fast they go, or which of several equal draws are taken.
_OF_NO_ACCOUNT: Mapping[str, frozenset[str]] = {
    "data": frozenset({"kind", "root", "annotations", "skip_bad", "seed"}),
    "model": frozenset({"name", "n_bits"}),
    "train": frozenset(
        {"seed", "augment_seed", "device", "workers", "compile", "validate_every", "checkpoint_every", "keep"}
    ),
}
#: Keys of the section ``model`` that another value of makes no other model: how inputs are read, and what the published
#: code has otherwise.
_SAME_MODEL = frozenset({"preprocess", "prompt", "word_vectors", "segmentation_words", "max_tokens"}) | frozenset(
    _PUBLISHED_CODE["model"]
)
#: Where features of augmented images come from makes no difference.
_SAME_FEATURES = ("auto", "bank", "online")
_GOOGLE_NEWS = "GoogleNews-vectors-negative300"


def differences(settings: Sections) -> dict[str, tuple[Any, Any]]:
    """Return key -> (of the run, of the paper's runs) where a run's data, model or training is not the paper's.

    The loss is compared elsewhere. Keys that the settings lack have their default, keys that they alone have count as
    off in the paper.

    Args:
        settings: a run's configuration, of one of the paper's models and collections.

    >>> paper = paper_configuration("cliphash", "nuswide")
    >>> differences({**paper, "train": {**paper["train"], "epochs": 30}})
    {'train.epochs': (30, 200), 'train.easy_weights': ('kinds', 'angles')}
    """
    model, kind = settings["model"]["name"], settings["data"]["kind"]
    theirs, defaults = _paper_and_defaults(model, kind)
    found = {}
    for section, ignored in _OF_NO_ACCOUNT.items():
        given = {**defaults[section], **settings.get(section, {})}
        for key, value in given.items():
            expected = theirs[section].get(key)
            if key not in ignored and _plain(key, value) != _plain(key, expected):
                found[f"{section}.{key}"] = value, expected
    return found


def is_same_model(settings: Sections) -> bool:
    """Say whether the run's model is the paper's: no other backbone, head or weights, and texts read as word vectors.

    >>> paper = paper_configuration("tdsrdh", "nuswide")
    >>> is_same_model(paper), is_same_model({**paper, "model": {**paper["model"], "word_vectors": None}})
    (True, False)
    """
    model = settings["model"]
    if model["name"] not in PAPER_PRESETS or settings["data"]["kind"] not in PAPER_KINDS:
        return False
    if model["name"] == "tdsrdh" and not model.get("word_vectors"):
        return False
    keys = [key.partition(".") for key in differences(settings)]
    return all(section != "model" or key in _SAME_MODEL for section, _, key in keys)


@cache
def _paper_and_defaults(model: str, kind: str) -> tuple[Sections, Sections]:
    """Return the complete settings of the paper's runs, and the defaults of all keys."""
    paper = paper_configuration(model, kind)
    bare = {"data": paper["data"], "model": {"name": model}}
    complete, defaults = (make_config({**sections, "loss": {"name": "dsch"}}).sections() for sections in (paper, bare))
    for section, values in _PUBLISHED_CODE.items():
        complete[section].update({key: value for key, value in values.items() if key in complete[section]})
    return complete, defaults


def _plain(key: str, value: Any) -> Any:
    """Return what counts of a value: of weights the tag, of word vectors whose they are; off is off."""
    if key == "pretrained" and isinstance(value, str):
        tag, file = split_source(value)
        return tag or str(file)
    if key == "word_vectors" and value:
        name = str(value).rpartition("/")[2]
        return _GOOGLE_NEWS if name.startswith(_GOOGLE_NEWS) else name
    if key == "features":
        return "auto" if value in _SAME_FEATURES else value
    return value or None
