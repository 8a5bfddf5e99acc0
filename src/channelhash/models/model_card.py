"""The model card that a saved model carries: what it is, how to use it, how it was trained, what to mind."""

from collections.abc import Mapping
from typing import Any

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
_FIGURES = """
On the validation partition, after {epochs} epochs, tie-aware mAP in percent:

| {tasks} |
|{rule}|
| {figures} |

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


def model_card(
    name: str,
    n_bits: int,
    modalities: tuple[str, ...],
    parameters: int,
    fingerprint: str,
    settings: Mapping[str, Any] | None = None,
    epochs: int = 0,
    validation: Mapping[str, float] | None = None,
    place: str = "this/folder",
) -> str:
    """The card as Markdown with the front matter of a model hub.

    Args:
        name: of the architecture.
        n_bits: code length k.
        modalities: that it encodes.
        parameters: how many are trained.
        fingerprint: of the weights.
        settings: sections of the training's configuration that may be shown; no section if None.
        epochs: that were trained.
        validation: task -> tie-aware mAP in [0, 1] after the last of them; no table if None.
        place: what `load_model` is to be given.
    """
    card = _HEAD.format(
        tags=", ".join(modalities),
        title=f"{' and '.join(modalities)} hashing, {n_bits} bits".capitalize(),
        modalities=" and ".join(f"{modality}s" for modality in modalities),
        n_bits=n_bits,
        n_bytes=-(-n_bits // 8),
        name=name,
        parameters=parameters,
        fingerprint=fingerprint,
        place=place,
        encode=_encoding(name, modalities),
    )
    if settings is not None:
        card += _TRAINING.format(settings=yaml.safe_dump(dict(settings), sort_keys=False))
    if validation:
        card += _FIGURES.format(
            epochs=epochs,
            tasks=" | ".join(task.replace("->", " → ") for task in validation),
            rule="|".join("---:" for _ in validation),
            figures=" | ".join(f"{100 * value:.1f}" for value in validation.values()),
        )
    return card + _LIMITS


def _encoding(name: str, modalities: tuple[str, ...]) -> str:
    if name == "features":
        return f'encode("{modalities[0]}", features)  # rows (n, d) of what it was trained on'
    return 'encode_images(["photo.jpg"])' if "image" in modalities else 'encode_texts(["a dog on a beach"])'
