"""Build what a configuration names: model and loss of a run."""

import torch

from channelhash.config import RunConfig
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.losses import HashLoss, make_loss, resolve_loss
from channelhash.models import HashModel, resolve_model
from channelhash.utils.seeds import derive_seed


def create_model(config: RunConfig, train_records: Records) -> HashModel:
    """Return the untrained model of a configuration; its weights are drawn from ``train.seed``.

    Raises:
        InputError: as the model's own.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.runs.demo import demo_config
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, np.ones((2, 1), dtype=bool), ("dog",))
    >>> create_model(demo_config(Path("demo"), "dsch", quick=True), records).modalities
    ('text',)
    """
    torch.manual_seed(derive_seed(config.train.seed, "weights"))
    settings = {name: getattr(config.model, name) for name in type(config.model).model_fields}
    model = resolve_model(config.model_name).create(train_records, config.n_bits, **settings)
    model.name = config.model_name  # under which a saved model is built again, also one's own
    model.set_precision(config.train.precision)
    return model


def create_loss(config: RunConfig, n_labels: int) -> HashLoss:
    """Return the loss of a configuration for ``n_labels`` labels; its parameters are drawn from ``train.seed``.

    Raises:
        InputError: this loss needs a teacher, not labels.

    >>> from pathlib import Path
    >>> from channelhash.runs.demo import demo_config
    >>> type(create_loss(demo_config(Path("demo"), "tdsrdh", quick=True), n_labels=3)).__name__
    'TDSRDHLoss'
    """
    if resolve_loss(config.loss_name).needs_teacher:
        raise InputError(f"loss.name: {config.loss_name!r} takes a teacher, not labels; use `channelhash distill`")
    torch.manual_seed(derive_seed(config.train.seed, "loss"))
    settings = {
        name: getattr(section, name) for section in (config.loss, config.terms) for name in type(section).model_fields
    }
    return make_loss(config.loss_name, config.n_bits, n_labels, **settings)


def check_pairs(config: RunConfig, records: Records) -> None:
    """Check that records in one modality are not to be learned from pairs.

    Raises:
        InputError: the loss is over pairs of an image and a text, or there are neither pairs nor labels.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.runs.demo import demo_config
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, np.ones((2, 1), dtype=bool), ("dog",))
    >>> check_pairs(demo_config(Path("demo"), "dsch", quick=True), records)
    """
    if len(records.items) > 1:
        return
    only = next(iter(records.items))
    terms = config.terms.model_dump()
    if config.loss_name == "contrastive" or terms["contrastive"] or terms["pairs"]:
        key = "name: contrastive" if config.loss_name == "contrastive" else "pairs" if terms["pairs"] else "contrastive"
        raise InputError(f"loss.{key}: learns from pairs of an image and a text, and there are only {only}s")
    if not records.label_names:
        raise InputError(
            f"the data has only {only}s and no labels: nothing says which items are alike; add labels or pairs"
        )
