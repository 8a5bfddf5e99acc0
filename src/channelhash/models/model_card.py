"""Model card of a saved model: what it is, how to use it, how it was trained, and its limits."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

_HEAD = """---
library_name: channelhash
tags: [cross-modal-hashing, {tags}]
---

# {title}

Maps {modalities} to codes of {n_bits} bits ({n_bytes} bytes an item) that are compared by Hamming distance: items that
share labels are near, whatever their modality. Architecture `{name}`, {parameters:,} trained parameters, fingerprint
`{fingerprint}`.

## Use

```python
import channelhash as ch

model = ch.load_model("{place}")
codes = model.{encode}
```

`channelhash search`, `index` and `serve` take the folder as `--model`. Codes of two models can be compared only if one
was made for the other's: the fingerprint is kept with every set of codes, and others are refused.
"""
_TRAINING = """
## Training

```yaml
{settings}```
"""
_VALIDATION = """
On the validation partition, after {epochs} epochs, {measure} in percent:

| {tasks} |
|{rule}|
| {scores} |

Beside a mAP belongs the chance level of its collection, and test figures: `channelhash evaluate RUN` prints both.
"""
_LIMITS = """
## Limits

* The codes know the labels that the model was trained on and what goes with them. For other questions, and other kinds
  of pictures and words, nothing was measured here.
* What is near follows the training data, with its gaps and prejudices: whoever labelled it decided what is alike.
* Whether weights may be passed on depends on the licences of the training data and of any backbone, which this card
  does not know.
"""


class ModelFacts(NamedTuple):
    """What a model card says of every model.

    Attributes:
        name: architecture.
        n_bits: code length k.
        modalities: modalities that it encodes.
        parameters: number of trained parameters.
        fingerprint: hash of the weights.
    """

    name: str
    n_bits: int
    modalities: tuple[str, ...]
    parameters: int
    fingerprint: str


def model_card(
    model: ModelFacts,
    settings: Mapping[str, Any] | None = None,
    epochs: int = 0,
    validation: Mapping[str, float] | None = None,
    measure: str = "tie-aware mAP",
    place: str = "this/folder",
) -> str:
    """Write the card as Markdown with the front matter of a model hub.

    Args:
        model: facts of the model.
        settings: sections of the training's configuration to show; None leaves the section out.
        epochs: number of trained epochs.
        validation: task -> score in [0, 1] after the last epoch; None leaves the table out.
        measure: name of the score.
        place: argument of `load_model` in the example.

    >>> model_card(ModelFacts("small", 16, ("text",), 5, "abc")).splitlines()[5]
    '# Text hashing, 16 bits'
    """
    card = _HEAD.format(
        **model._asdict() | {"modalities": " and ".join(f"{modality}s" for modality in model.modalities)},
        tags=", ".join(model.modalities),
        title=f"{' and '.join(model.modalities)} hashing, {model.n_bits} bits".capitalize(),
        n_bytes=-(-model.n_bits // 8),
        place=place,
        encode=_encoding(model.name, model.modalities),
    )
    if settings is not None:
        card += _TRAINING.format(settings=yaml.safe_dump(dict(settings), sort_keys=False))
    if validation:
        card += _VALIDATION.format(
            epochs=epochs,
            measure=measure,
            tasks=" | ".join(task.replace("->", " → ") for task in validation),
            rule="|".join("---:" for _ in validation),
            scores=" | ".join(f"{100 * value:.1f}" for value in validation.values()),
        )
    return card + _LIMITS


def _encoding(name: str, modalities: tuple[str, ...]) -> str:
    if name == "features":
        return f'encode("{modalities[0]}", features)  # rows (n, d) of what it was trained on'
    return 'encode_images(["photo.jpg"])' if "image" in modalities else 'encode_texts(["a dog on a beach"])'
