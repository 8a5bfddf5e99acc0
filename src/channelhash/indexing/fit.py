"""Fit the codes of a new store to its items."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import unit_rows
from channelhash.data.images import image_problem
from channelhash.data.records import VECTOR
from channelhash.errors import InputError, argument
from channelhash.indexing.encode import EncodedBatch, ModelOutputs, encode_batches, mean_by_image
from channelhash.indexing.source import Source
from channelhash.models import fitted
from channelhash.models.description import FEATURES, EncoderWord, Model, in_one_word
from channelhash.models.encoders import Encoder, is_encoder, open_encoder
from channelhash.models.linear_maps import FeatureMatrix, LinearMap, pca_itq
from channelhash.utils.optional_imports import naming_extra
from channelhash.utils.progress import Progress, StageProgress
from channelhash.utils.seeds import generator

#: The most items that codes are fitted to. More change little, and their features stay in memory.
_SAMPLE = 20_000
#: Texts whose vectors are compared with what an extractor makes of them.
_TEXTS = 20
#: Mean cosine from which these count as the same: other digits, or words that were added to each
#: text, leave more.
_SAME = 0.9


@dataclass(frozen=True)
class NewCodes:
    """The codes of a new store, and what makes them.

    Attributes:
        encoder: the name of an encoder (`models.encoders`), or a run or saved model, which has its
            own codes. None stands for ``features`` if the items are features, else for ``photo``.
        codes: how codes are fitted, see `models.fitted.fit_codes`.
        n_bits: code length k.
        seed: of the sample and of random rotations.

    >>> NewCodes("photo").n_bits
    256
    """

    encoder: EncoderWord | None = None
    codes: fitted.Codes = "auto"
    n_bits: int = fitted.N_BITS
    seed: int = 0

    def __post_init__(self) -> None:
        chosen = (self.codes, self.n_bits, self.seed) != ("auto", fitted.N_BITS, 0)
        if not self.are_fitted and chosen:
            raise InputError(
                f"{argument('encoder')} {self.encoder}: a run has its own codes; leave out "
                f"{argument('codes')}, {argument('n_bits')} and {argument('seed')}, or name an "
                "encoder"
            )

    @property
    def are_fitted(self) -> bool:
        """Whether they are fitted to items, not those of a run or saved model."""
        return self.encoder is None or is_encoder(self.encoder)


def fit_source(
    source: Source, codes: NewCodes, progress: StageProgress
) -> tuple[fitted.FittedModel, list[EncodedBatch], Source]:
    """Fit codes to at most 20,000 items of a source, without images that cannot be read.

    Return the model, the encoded sample, and the source. The sample is empty where the encoder has
    codes of its own. If none of the images can be read, their raw originals join the source. Memory
    grows with the features of the sample, about 5 KB an image with ``photo-backbones``.
    """
    widths = fitted.feature_widths(source.records)
    encoder = open_encoder(codes.encoder or (FEATURES if widths else "photo"), widths)
    if not encoder.modalities:
        raise InputError(
            f"{argument('encoder')} features: the items are images or texts; name the encoder of "
            "these, such as photo"
        )
    extract = fitted.FittedModel.from_encoder(encoder)
    source = _with_readable(source.encodable(extract))
    if not fitted.need_items(encoder, codes.n_bits, codes.codes):
        model = fitted.fit_codes(encoder, {}, codes.n_bits, codes.codes, codes.seed)
        return model, [], source
    sample = _sample(source, encoder, codes)
    batches = _encode_sample(extract, source, sample, progress("fit"))
    features = _features(encoder, batches)
    model = fitted.fit_codes(encoder, features, codes.n_bits, codes.codes, codes.seed, _learn)
    return model, [_project_batch(model, batch) for batch in batches], source


def _learn(features: FeatureMatrix, n_bits: int, seed: int, name: str) -> LinearMap:
    """Learn a map from the neighbours of features."""
    with naming_extra("train"):
        from channelhash.compression.learning import learn_map
    start = pca_itq(features, n_bits, seed, name)
    return learn_map(np.asarray(features, np.float32), start, "euclidean", seed)


def compare_with_texts(model: fitted.FittedModel, source: Source) -> tuple[str, ...]:
    """Return a remark if a model makes other vectors of texts than those that the items have.

    It is no error: the vectors may be of something else than these texts, as those of photographs
    by CLIP, and yet be compared with words. Without texts, or if words are not encoded, there is
    nothing to compare.
    """
    if not {VECTOR, "text"} <= set(model.modalities):
        return ()
    texts = dict(islice(_texts(source), _TEXTS))
    if not texts:
        return ()
    made = unit_rows(model.encoder.features("text", list(texts.values())))
    vectors = unit_rows(np.asarray(source.records.take([*texts]).items[VECTOR]))
    cosine = float((made * vectors).sum(axis=1).mean())
    if cosine >= _SAME:
        return ()
    return (
        f"these vectors are not what {in_one_word(model.encoder.word)} makes of their texts "
        f"(cosine {cosine:.2f}): words may find nothing useful",
    )


def _texts(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the rows that have a text, each with it."""
    for row, values in enumerate(source.metadata):
        text = values.get("text")
        if isinstance(text, str) and text:
            yield row, text


def _with_readable(source: Source) -> Source:
    """Return a source; with the raw originals of its images if none of these can be read."""
    if not source.reads_files:
        return source
    problems = list[str]()
    for path in source.records.items["image"]:
        problem = image_problem(Path(path))
        if problem is None:
            return source
        problems.append(problem)
    with_raw = source.read_raw_of(set(source.records.ids))
    if with_raw is None:
        raise _none_readable(source, problems)
    return _with_readable(with_raw)


def _none_readable(source: Source, problems: Sequence[str]) -> InputError:
    """Return the error of a source none of whose images can be read."""
    first = [*problems, *source.records.problems][0]
    return InputError(f"{first}; none of the {len(problems):,} pictures can be read, give others")


def _sample(source: Source, encoder: Encoder, codes: NewCodes) -> list[int]:
    """Draw the rows to fit to: those with captions, if these join two spaces."""
    candidates = np.arange(len(source.records))
    if source.captions and not encoder.one_space and codes.codes in ("auto", "cca-itq"):
        captioned = np.flatnonzero([bool(texts) for texts in source.captions])
        if len(captioned) >= fitted.MIN_PAIRS or codes.codes == "cca-itq":
            candidates = captioned
    drawn = generator(codes.seed, "fit", len(candidates)).permutation(candidates)[:_SAMPLE]
    return [int(row) for row in np.sort(drawn)]


def _encode_sample(
    model: Model, source: Source, rows: Sequence[int], progress: Progress
) -> list[EncodedBatch]:
    batches = []
    done = 0
    for batch in encode_batches(model, source, rows):
        batches.append(batch)
        done += len(batch.rows) + len(batch.unread)
        progress(done, len(rows))
    if not any(batch.rows for batch in batches):
        unread = chain.from_iterable(batch.unread.values() for batch in batches)
        raise _none_readable(source, [image.problem for image in unread])
    return batches


def _features(encoder: Encoder, batches: Sequence[EncodedBatch]) -> ModelOutputs:
    """Return features by modality, including those of captions if these represent all images."""
    outputs = [batch.outputs for batch in batches if batch.rows]
    features = {name: _concatenate(outputs, name) for name in outputs[0]}
    captions = chain.from_iterable(batch.captions for batch in batches)
    counts = list(map(len, captions))
    if _stand_for_all(encoder, counts):
        texts = list(filter(None, (batch.caption_outputs for batch in batches)))
        features["text"] = mean_by_image(_concatenate(texts, "text"), list(filter(None, counts)))
    return features


def _concatenate(outputs: Sequence[ModelOutputs], modality: str) -> NDArray[np.float32]:
    return np.concatenate([rows[modality] for rows in outputs])


def _stand_for_all(encoder: Encoder, counts: Sequence[int]) -> bool:
    """Return whether all images have captions, or enough of them to represent all."""
    captioned = sum(map(bool, counts))
    if encoder.one_space and captioned >= fitted.MIN_PAIRS:
        return True
    return 0 < captioned == len(counts)


def _project_batch(model: fitted.FittedModel, batch: EncodedBatch) -> EncodedBatch:
    return batch._replace(
        outputs=_project(model, batch.outputs),
        caption_outputs=_project(model, batch.caption_outputs),
    )


def _project(model: fitted.FittedModel, features: ModelOutputs) -> ModelOutputs:
    """Return the outputs whose signs are the codes, for the model's modalities."""
    return {
        name: model.project(name, rows)
        for name, rows in features.items()
        if name in model.modalities
    }
