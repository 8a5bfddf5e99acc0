"""``channelhash config …`` and ``channelhash list``"""

import re
import sys
from pathlib import Path
from typing import Literal

import typer

from channelhash.cli.options import AsJson, command_group
from channelhash.cli.output import print_json, print_names
from channelhash.errors import InputError

app = command_group("Show and copy the configurations that ship with the package.")
_Name = typer.Argument(..., help="Name of a configuration, as config list prints it.")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the configurations that `channelhash train --preset NAME` takes.

    Example: channelhash config list
    """
    from channelhash.runs.presets import presets, summary

    found = {name: summary(path) for name, path in presets().items()}
    if as_json:
        print_json(found)
    else:
        print_names(found)


@app.command()
def show(name: str = _Name) -> None:
    """Print a configuration.

    Example: channelhash config show recommended
    """
    from channelhash.runs.presets import preset_path

    typer.echo(preset_path(name).read_text(encoding="utf-8"), nl=False)


@app.command()
def copy(
    name: str = _Name, to: Path | None = typer.Argument(None, help="The new file; NAME.yaml in this folder by default.")
) -> None:
    """Copy a configuration, to change it; `channelhash train FILE` takes the copy.

    Example: channelhash config copy recommended mine.yaml
    """
    from channelhash.runs.presets import preset_path
    from channelhash.utils.files import write_text

    text, target = preset_path(name).read_text(encoding="utf-8"), to or Path(f"{name}.yaml")
    if target.exists():
        raise InputError(f"{target}: is there already; name another file")
    write_text(target, text)
    typer.echo(f"Next: channelhash train {target}")


Kind = Literal["losses", "models", "encoders", "data", "stores", "experiments"]


def names(kind: Kind = typer.Argument(..., help="What to list."), as_json: AsJson = False) -> None:
    """List the losses, models, encoders, kinds of data, stores or experiments that a configuration or command may name.

    Example: channelhash list losses
    """
    found = _LISTS[kind] if kind in _LISTS else _encoders() if kind == "encoders" else _data()
    if as_json:
        print_json(found)
    else:
        print_names(found)


#: What the registries that need PyTorch hold, which takes seconds to load where it is installed; a test compares them.
_LISTS: dict[Kind, dict[str, str]] = {
    "losses": {
        "dsch": "DSCH: Dynamic Semantic Channel Hashing, the paper's loss.",
        "bsch": "BSCH: balanced semantic channels, this project's own objective.",
        "rsch": "RSCH: root-mean-square semantic channels, this project's own objective.",
        "sch": "SCH: Semantic Channel Hashing (Hu et al. 2024), the baseline with channels of fixed width.",
        "sch-original": "SCH as its authors' code has it (Hu et al., IEEE TPAMI 2024).",
        "tdsrdh": "TDSRDH (Zhou et al. 2023) as the paper has it: pairwise, quantisation and triplet term, normalised.",
        "dcmh": "DCMH and DPSH: the pairwise negative log-likelihood (Jiang & Li, CVPR 2017; Li et al., IJCAI 2016).",
        "hashnet": "HashNet: weighted maximum likelihood (Cao et al., ICCV 2017).",
        "idhn": "IDHN: hard pairs by likelihood, softly similar ones by squared error (Zhang et al., IEEE TMM 2020).",
        "csq": "CSQ: central similarity, codes near the centre of their labels (Yuan et al., CVPR 2020).",
        "orthohash": "OrthoHash: one cosine softmax over orthogonal binary targets (Hoe et al., NeurIPS 2021).",
        "greedyhash": "GreedyHash: a classifier on signs, with a straight-through gradient (Su et al., NeurIPS 2018).",
        "hyp2": "HyP² and DSPH: trained proxies of labels (Xu et al., ACM MM 2022; Huo et al., TCSVT 2024).",
        "dnph": "DNPH: proxies by a softmax of distances, codes spread over the cube (Huo et al., ACM TOMM 2024).",
        "talr": "TALR: the tie-aware average precision itself as the loss (He et al., CVPR 2018).",
        "qsmi": "QSMI of DNpH: quadratic mutual information of codes and labels (Qin et al., IEEE TMM 2024).",
        "dcgh": "DCGH: trained proxies, pairs held to the cosine of their labels (Chen et al., arXiv 2410.15387).",
        "contrastive": "Contrastive term: a sample's outputs in two modalities find each other in the batch.",
    },
    "models": {
        "small": "a convolutional image encoder and a text encoder trained from scratch, for a laptop.",
        "features": "a hash head on each modality's precomputed features.",
        "aligned": "a head for each side of a frozen encoder, learned from pairs of images and texts.",
        "tdsrdh": "a residual network and a Transformer over word vectors, each with a hash head.",
        "cliphash": "one hash head for the two towers of an OpenCLIP model.",
        "fitted": "codes without labels and without training, from an encoder that stays as it is.",
    },
    "experiments": {
        "losses": "Losses by code length",
        "gamma-w": "DSCH by γ_w",
        "architectures": "Architectures and losses",
        "factorial": "Channel and quantisation term",
        "weights": "Losses as published and tuned alike",
        "robustness": "Robustness to corrupted queries and wrong labels",
    },
    "stores": {
        "FOLDER": "made by index create; a folder of photographs is searched as it is",
        "RUN": "a run's folder: its retrieval set, to be read only",
        "FILE.parquet": "codes, to be read only",
        "postgresql://ADDRESS": "a schema of PostgreSQL with pgvector: postgresql://user@host/database?store=name",
        "milvus+ADDRESS": "a collection of Milvus: milvus+http://host:19530/name",
    },
}


def _encoders() -> dict[str, str]:
    from channelhash.models.description import ENCODER_FORMS

    return {word: meaning.replace("`", "") for word, meaning in ENCODER_FORMS.items()}


def _data() -> dict[str, str]:
    """Return each kind of data with the first line of its loader's file, without the name that it begins with."""
    from channelhash.data import DATA_KINDS

    documents = {name: sys.modules[kind.load.__module__].__doc__ or "" for name, kind in DATA_KINDS.items()}
    return {
        name: re.sub(r"^``\w+``: ", "", text.partition("\n")[0]).replace("`", "") for name, text in documents.items()
    }
