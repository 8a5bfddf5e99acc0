"""The configuration of a run that extends another: its model, loss and training, and the new items."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from channelhash.config import (
    ExtendSettings,
    RunConfig,
    make_config,
    read_run_config,
    read_sections,
)
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.losses import HashLoss, resolve_loss
from channelhash.utils.array_files import ENDINGS as ARRAY_ENDINGS
from channelhash.utils.overrides import apply_override


def extension_config(
    run: Path, data: Path, root: Path | None = None, codes: Path | None = None, overrides: Sequence[str] = ()
) -> RunConfig:
    """Return the configuration that extends ``run`` by the items of ``data``, all else being as in ``run``.

    Args:
        run: folder of a finished run.
        data: table or file of features with labels, or a YAML configuration, whose section ``data`` is read.
        root: for a table, the folder of its images.
        codes: see `config.ExtendSettings`.
        overrides: each ``"section.key=value"``.

    Raises:
        InputError: there is no such run or file, the run is a student's, or as `config.make_config`.
    """
    extended = read_run_config(run)
    if resolve_loss(extended.loss_name).needs_teacher:
        raise InputError(
            f"{run}: a student, which learned from a teacher and not from labels; extend the teacher (named in its "
            "distillation.json), and distill that extension"
        )
    sections: dict[str, dict[str, Any]] = extended.sections()
    ending = data.suffix.lower()
    if ending in (".yaml", ".yml"):
        sections["data"] = dict(read_sections(data).get("data", {}))
    elif not data.is_file():
        what = "a folder has no labels" if data.is_dir() else "no such file"
        raise InputError(f"--data {data}: {what}; name a table or a file of features with labels, or a configuration")
    else:
        sections["data"] = {"kind": "features" if ending in ARRAY_ENDINGS else "table", "path": str(data)}
    if root is not None:
        sections["data"]["root"] = str(root)
    sections["extend"] = {"run": str(run)} | ({} if codes is None else {"codes": str(codes)})
    for override in overrides:
        apply_override(sections, override)
    return make_config(sections)


def check_extension(config: RunConfig, extend: ExtendSettings, loss: HashLoss, new: Records) -> None:
    """Check that a run can be extended by these new items with this loss.

    Args:
        config: of the new run.
        extend: its section ``extend``.
        loss: its loss.
        new: the new items.

    Raises:
        InputError: the model is another one, the loss has no channels, images are blended, or the items
            have no labels.
    """
    extended = read_run_config(extend.run)
    if (extended.model_name, extended.n_bits, extended.model) != (config.model_name, config.n_bits, config.model):
        raise InputError(f"model: an extension has the model of {extend.run}; leave the section model as it is there")
    if loss.channels is None:
        raise InputError(
            f"loss.name: {config.loss_name!r} has no channels (bounds) to place new items in; extend with dsch, "
            "sch, bsch or rsch"
        )
    if config.train.mix_images:
        raise InputError(
            "train.mix_images: a blend of old and new images is neither, and has no stored code; set it to 0"
        )
    if not new.labels.any():
        raise InputError("the new items have no labels; nothing says which of the old ones they are like")
