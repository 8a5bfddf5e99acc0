"""Create the model and the loss that a configuration names."""

import inspect
import json

import torch

from channelhash.config import RunConfig
from channelhash.data.collection import row_problems
from channelhash.data.records import Records
from channelhash.data.splits import RowNumbers
from channelhash.errors import InputError, naming
from channelhash.losses import HashLoss, make_loss, resolve_loss
from channelhash.models import HashModel, resolve_model
from channelhash.utils.seeds import derive_seed
from channelhash.utils.typed_settings import check_kind


def create_model(config: RunConfig, train_records: Records) -> HashModel:
    """Return the untrained model of a configuration; its weights are drawn from ``train.seed``.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> texts = {"text": ("a dog", "a dog")}
    >>> records = Records(("a", "b"), texts, np.ones((2, 1), dtype=bool), ("dog",))
    >>> create_model(demo_config(Path("demo"), "dsch", quick=True), records).modalities
    ('text',)
    """
    torch.manual_seed(derive_seed(config.train.seed, "weights"))
    kind = resolve_model(config.model_name)
    name = f"model.name {config.model_name}"
    model = check_kind(
        kind.create(train_records, config.n_bits, **vars(config.model)),
        HashModel,
        f"{name}: create",
    )
    with naming(f"{name}: architecture has to be JSON, and the arguments of build", TypeError):
        inspect.signature(kind.build).bind(**json.loads(json.dumps(model.architecture)))
    # A saved model is built again under this name, a person's own too.
    model.name = config.model_name
    model.set_precision(config.train.precision)
    return model


def create_loss(config: RunConfig, n_labels: int) -> HashLoss:
    """Return the loss of a configuration for ``n_labels`` labels; its parameters are drawn from
    ``train.seed``.

    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> type(create_loss(demo_config(Path("demo"), "tdsrdh", quick=True), n_labels=3)).__name__
    'TDSRDHLoss'
    """
    if resolve_loss(config.loss_name).needs_teacher:
        raise InputError(
            f"loss.name: {config.loss_name!r} takes a teacher, not labels; use `channelhash "
            "distill`"
        )
    torch.manual_seed(derive_seed(config.train.seed, "loss"))
    return make_loss(
        config.loss_name, config.n_bits, n_labels, **vars(config.loss) | vars(config.terms)
    )


def list_doubts(config: RunConfig, records: Records, rows: RowNumbers) -> list[str]:
    """Return the problems of the records, and why a training on ``rows`` of them may disappoint."""
    train = records.take(rows)
    n = len(set(train.pair_ids) if config.train.captions == "one" else train)
    doubts = [*records.problems, *row_problems(records)]
    if n < config.train.batch_size:
        doubts.append(
            f"train.batch_size is {config.train.batch_size}, and {n} rows are trained on: a batch "
            "is all of them"
        )
    return doubts


def check_pairs(config: RunConfig, records: Records) -> None:
    """Check that a loss can learn from these records: pairs need two modalities, all else labels.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> texts = {"text": ("a dog", "a dog")}
    >>> records = Records(("a", "b"), texts, np.ones((2, 1), dtype=bool), ("dog",))
    >>> check_pairs(demo_config(Path("demo"), "dsch", quick=True), records)
    """
    if len(records.items) > 1:
        return
    only = next(iter(records.items))
    terms = config.terms.model_dump()
    from_pairs = {
        "name: contrastive": config.loss_name == "contrastive",
        "pairs": terms["pairs"],
        "contrastive": terms["contrastive"],
    }
    for key, is_used in from_pairs.items():
        if is_used:
            raise InputError(
                f"loss.{key}: learns from pairs of an image and a text, and there are only {only}s"
            )
    if not records.label_names:
        raise InputError(
            f"the data has only {only}s and no labels: nothing says which are alike; add labels or "
            "pairs"
        )
