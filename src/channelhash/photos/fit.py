"""Fit the codes of a new store to its items; features computed for that are used again when the items are written."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from channelhash.errors import InputError
from channelhash.models import HashModel
from channelhash.models.description import FEATURES, Word
from channelhash.models.encoders import Encoder, is_encoder, open_encoder
from channelhash.models.fitted import MIN_PAIRS, N_BITS, Codes, feature_widths, fit_codes, fitted_part
from channelhash.photos.encode import Batch, encodable, encode_batches, with_captions
from channelhash.photos.source import Source
from channelhash.utils.environment import pick_device
from channelhash.utils.progress import Progress
from channelhash.utils.seeds import generator

#: Codes are fitted to so many items at most, drawn by the seed.
_SAMPLE = 20_000


@dataclass(frozen=True)
class NewCodes:
    """What codes a new store is to have.

    Attributes:
        encoder: names an encoder (`models.encoders`), or a run or saved model, which has codes of its own; None is
            ``features`` for items that are features, else ``photo``.
        codes: how codes are fitted, see `models.fitted.fit_codes`.
        n_bits: code length.
        seed: of the sample and of random rotations.

    Raises:
        InputError: settings of the fit are given for a run or saved model.

    >>> NewCodes("photo").n_bits
    256
    """

    encoder: Word | None = None
    codes: Codes = "auto"
    n_bits: int = N_BITS
    seed: int = 0

    def __post_init__(self) -> None:
        fitted = (self.codes, self.n_bits, self.seed) != ("auto", N_BITS, 0)
        if self.encoder is not None and not is_encoder(self.encoder) and fitted:
            raise InputError(
                f"--encoder {self.encoder}: a run has its own codes; leave out --codes, --bits and --seed, or name an "
                "encoder"
            )


def fit_source(source: Source, new: NewCodes, progress: Progress) -> tuple[HashModel, list[Batch]]:
    """Fit codes to at most `_SAMPLE` items of a source, images that cannot be read left out.

    Memory grows with the sample's features, about 5 KB an image with ``photo``.

    Args:
        source: the items.
        new: an encoder and how codes are fitted.
        progress: called with (done, n) while features are computed.

    Returns:
        The model, and batches of the sample, encoded, to be written.

    Raises:
        InputError: the encoder cannot be opened or does not take these items, or none can be read; or as `fit_codes`.
    """
    widths = feature_widths(source.records)
    encoder = open_encoder(new.encoder or (FEATURES if widths else "photo"), widths)
    if not encoder.modalities:
        raise InputError("--encoder features: the items are images or texts; name the encoder of these, such as photo")
    extract = encoder.model().to(pick_device("auto"))
    source = encodable(source, extract)
    rows = _sample(source, encoder, new)
    plain, batches, texts = replace(source, captions=None), list[Batch](), list[Tensor]()
    for batch in encode_batches(extract, plain, rows):
        batches.append(batch)
        texts.append(_caption_features(extract, source, batch))
        progress(sum(len(batch.rows) + len(batch.problems) for batch in batches), len(rows))
    if not any(batch.rows for batch in batches):
        problems = [*(line for batch in batches for line in batch.problems), *source.records.problems]
        raise InputError(f"{problems[0]}; none of the {len(rows):,} pictures can be read, give others")
    features = {name: values.numpy() for name, values in _features(source, encoder, batches, texts).items()}
    model = fit_codes(encoder, features, new.n_bits, new.codes, new.seed)
    return model, list(_ready(model, source, batches, texts))


def _sample(source: Source, encoder: Encoder, new: NewCodes) -> list[int]:
    """Draw the rows to fit to: those with captions, where the fit joins two spaces by them."""
    candidates = np.arange(len(source.records))
    if source.captions and not encoder.one_space and new.codes in ("auto", "cca-itq"):
        captioned = np.flatnonzero([bool(texts) for texts in source.captions])
        if len(captioned) >= MIN_PAIRS or new.codes == "cca-itq":
            candidates = captioned
    drawn = generator(new.seed, "fit", len(candidates)).permutation(candidates)[:_SAMPLE]
    return [int(row) for row in np.sort(drawn)]


def _caption_features(extract: HashModel, source: Source, batch: Batch) -> Tensor:
    """Return the features of all captions of a batch, one after the other."""
    captions = [text for row in batch.rows for text in source.captions[row]] if source.captions else []
    return extract.outputs("text", captions) if captions else torch.empty(0, 0)


def _features(source: Source, encoder: Encoder, batches: list[Batch], texts: list[Tensor]) -> dict[str, Tensor]:
    """Return features by modality; those of captions where all images have some, or where enough stand for all."""
    names = batches[0].outputs if batches else ()
    features = {name: torch.cat([batch.outputs[name] for batch in batches if batch.rows]) for name in names}
    captions = [source.captions[row] for batch in batches for row in batch.rows] if source.captions else []
    counts = [len(several) for several in captions if several]
    if counts and (len(counts) == len(captions) or (encoder.one_space and len(counts) >= MIN_PAIRS)):
        each = torch.split(torch.cat([rows for rows in texts if len(rows)]), counts)
        features["text"] = torch.stack([rows.mean(dim=0) for rows in each])
    return features


def _ready(model: HashModel, source: Source, batches: list[Batch], texts: list[Tensor]) -> Iterator[Batch]:
    """Yield the batches with the model's outputs instead of features."""

    def outputs(modality: str, rows: Tensor) -> Tensor:
        with torch.no_grad():
            projected: Tensor = fitted_part(model.branch(modality))(rows)
        return projected

    for batch, features in zip(batches, texts, strict=True):
        if not batch.rows:
            continue
        encoded = {name: outputs(name, rows) for name, rows in batch.outputs.items() if name in model.modalities}
        batch = batch._replace(outputs=encoded, problems=[])  # who reads them again finds the problems
        if len(features) and "text" in model.modalities:
            yield from with_captions(source, batch, outputs("text", features))
        else:
            yield batch
