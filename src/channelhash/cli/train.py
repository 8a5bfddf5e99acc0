"""``channelhash demo``, ``train``, ``extend``, ``distill``, ``export``, ``config …`` and
``list``
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from channelhash import models
from channelhash.cli import same_command, shared
from channelhash.cli.shared import percent
from channelhash.errors import InputError, argument
from channelhash.utils.progress import StageProgress
from channelhash.utils.typed_settings import python_names

if TYPE_CHECKING:
    from channelhash.models.fitted import FittedModel
    from channelhash.models.hash_model import HashModel

_Modalities = Annotated[
    list[str],
    typer.Option("--modality", help="Modality to include; all by default. May be repeated."),
]
_Resume = Annotated[
    bool, typer.Option("--resume", help="Continue an interrupted run in the same folder.")
]


def demo(
    out: Path = typer.Option(Path("demo"), help="Folder for everything that the demo writes."),
    quick: shared.Quick = False,
    as_json: shared.AsJson = False,
) -> None:
    """Run the whole job on the embedded data set: draw it, train three losses, compare them, answer
    queries.

    With --quick it takes a minute or two.

    Example: channelhash demo --quick
    """
    from channelhash.lab.demo import run_demo

    with shared.progress_bars(f"finished parts are kept in {out}") as progress:
        result = run_demo(out, quick, progress, shared.say)
    shared.print_either(result, as_json, _print_demo, result)


def _print_demo(result: Mapping[str, Any]) -> None:
    """Print the scores, what was found, where everything is, and what to do next."""
    rows = result["rows"]
    title = (
        f"Tie-aware mAP in %, {rows['query']} queries against {rows['retrieval']} items, "
        f"{rows['train']} trained on"
    )
    losses = result["losses"]
    reports = next(iter(losses.values()))
    cells = []
    for name, tasks in losses.items():
        cells.append([name, *(percent(report["map_tie_aware"]) for report in tasks.values())])
    chance = ["chance", *(percent(report["chance"]) for report in reports.values())]
    header = ["loss", *(task.replace("->", " → ") for task in reports)]
    shared.print_table(title, header, cells, chance, numeric=True)
    answered = []
    for text, fit in result["texts"].items():
        shares = [percent(fit["fitting"] / fit["shown"]), percent(fit["chance"])]
        answered.append([text, f"{fit['fitting']} of {fit['shown']}", *shares])
    title = "Pictures found that show all of what the words ask for"
    shared.print_table(title, ["words", "fit", "%", "chance, %"], answered, numeric=True)
    run = Path(result["runs"]["dsch"])
    typer.echo(f"Took {result['seconds']:.0f} s. Written:")
    typer.echo(f"  {result['sheets']['text']}  answers to typed words")
    typer.echo(f"  {result['sheets']['image']}  answers to pictures (by the texts nearest to them)")
    typer.echo(f"  {run.parent}  runs: configuration, log, checkpoints, codes, figures")
    typer.echo(
        "Next, words of your own, and photographs of your own (pip install 'channelhash[photos]'):"
    )
    typer.echo(f'  channelhash search {run} --text "boats on the sea"')
    typer.echo('  channelhash search FOLDER "boats on the sea" --sheet answers.png')


def _resumed_command() -> list[str]:
    """Return the words of the command that runs, with ``--resume``."""
    return [*same_command(), *(["--resume"] if "--resume" not in sys.argv else [])]


def _run(start: Callable[[StageProgress], dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Train and return the result; end the command where another process of a distributed training
    speaks for all.
    """
    from channelhash.training.distributed import launched_rank

    with shared.progress_bars(
        f"{folder} keeps all up to its last checkpoint", _resumed_command
    ) as progress:
        result = start(progress)
    if launched_rank() > 0:
        raise typer.Exit
    return result


def train(
    config: Path | None = typer.Argument(
        None, help="YAML file: sections data, model, loss, train, evaluate."
    ),
    preset: str | None = typer.Option(
        None, help="Instead of a file, a configuration by its name (config list)."
    ),
    data: Path | None = typer.Option(
        None, help="Table, file of features or folder, instead of the configuration's."
    ),
    root: shared.TableRoot = None,
    epochs: int | None = typer.Option(None, min=1, help="Epochs, instead of the configuration's."),
    out: Path | None = typer.Option(
        None, help="The run's folder; runs/<name of the file> by default."
    ),
    settings: shared.Overrides = [],
    resume: _Resume = False,
    skip_bad: shared.SkipBad = False,
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Check all, time a few steps, print sizes and estimates."
    ),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Train a model into a run's folder.

    Example: channelhash train --data items.csv --root photos --out runs/mine

    Example: channelhash train --preset photo --data captions.csv --skip-bad

    Example: channelhash train --data features.npz --set loss.name=sch --epochs 10
    """
    from channelhash.config import read_config, read_sections
    from channelhash.presets import configuration_path, preset_path, short_overrides
    from channelhash.runs.plan import plan_run
    from channelhash.runs.train import start_run

    config = configuration_path(config, preset) or preset_path("recommended")
    # --set comes after them and prevails
    short = short_overrides(read_sections(config), data, root, epochs)
    resolved = read_config(config, [*short, *_read_overrides(settings, skip_bad)])
    if dry_run:
        plan = plan_run(resolved)
        shared.print_either(plan, as_json, shared.print_plan, "Plan", plan)
        return
    folder = out or Path("runs") / config.stem
    result = _run(lambda progress: start_run(resolved, folder, resume, progress).as_dict(), folder)
    shared.print_either(result, as_json, _print_trained, result, folder)


def _read_overrides(settings: Sequence[str], skip_bad: bool) -> list[str]:
    """Return the configuration keys that ``--set`` and ``--skip-bad`` override."""
    return [*settings, *(["data.skip_bad=true"] if skip_bad else [])]


def _print_trained(result: Mapping[str, Any], folder: Path) -> None:
    """Print the result of a training, and the next command."""
    from channelhash.config import read_sections

    typer.echo(
        f"{result['epochs']} epochs, last mean loss {result['loss']:.4f}. The run is in {folder}"
    )
    _print_problems(result, folder)
    if result["validation"]:
        rows = [
            [task.replace("->", " → "), percent(value)]
            for task, value in result["validation"].items()
        ]
        from channelhash.training.validation import MEASURES  # PyTorch, which has just trained

        measure = MEASURES[result["measure"]]
        shared.print_table(
            f"Validation, {measure} in %", ["task", measure.removeprefix("tie-aware ")], rows
        )
    trust = " --trust-code" if python_names(read_sections(folder / "config.yaml")) else ""
    typer.echo(f"Next: channelhash evaluate {folder}{trust}")


def _print_problems(result: Mapping[str, Any], folder: Path) -> None:
    if result["problems"]:
        typer.echo(
            f"{len(result['problems'])} problems of the data, listed in {folder / 'problems.txt'}"
        )


def extend(
    run: Path = typer.Argument(..., help="A finished run's folder."),
    data: Path = typer.Option(
        ..., help="The new items: a table, features, or a YAML file with the section data."
    ),
    out: Path | None = typer.Option(None, help="The new run's folder; <RUN>-extended by default."),
    root: shared.TableRoot = None,
    settings: shared.Overrides = [],
    resume: _Resume = False,
    skip_bad: shared.SkipBad = False,
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Train a run further on new items, with new labels if they have any; its existing codes stay
    valid.

    Example: channelhash extend runs/table --data new.csv --out runs/extended
    """
    from channelhash.runs.extend import DESCRIPTION, extension_config
    from channelhash.runs.train import start_run

    config = extension_config(run, data, root, _read_overrides(settings, skip_bad))
    folder = out or run.with_name(f"{run.name}-extended")
    result = _run(lambda progress: start_run(config, folder, resume, progress).as_dict(), folder)
    description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    if as_json:
        shared.print_json({**result, "extension": description})
        return
    items = description["items"]
    labels = ", ".join(description["labels"]["new"]) or "none"
    typer.echo(f"{items['new']} new items beside {items['old']}; new labels: {labels}")
    _print_trained(result, folder)


def distill(
    run: Path = typer.Argument(..., help="Folder of a finished run, the teacher."),
    student: str = typer.Option(
        ..., help="Name of a model, or a YAML file with the section model (data, train)."
    ),
    data: Path | None = typer.Option(None, help="Another source of the same items, joined by id."),
    modalities: _Modalities = [],
    out: Path | None = typer.Option(
        None, help="The student's folder; runs/<run>-<student> by default."
    ),
    settings: shared.Overrides = [],
    resume: _Resume = False,
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Train a small model to reproduce a large model's codes, and compare the two.

    Codes of either model can search among the other's. Splits and settings are the teacher's unless
    overridden.

    Example: channelhash distill runs/clip --student small --set model.width=16

    Example: channelhash distill runs/features --student small --data items.csv --set
    data.root=images
    """
    from channelhash.lab import distill as student_runs
    from channelhash.runs.folder import open_run

    teacher = open_run(run)
    config = student_runs.student_config(teacher.config, student, data, settings)
    folder = out or Path("runs") / f"{run.resolve().name}-{Path(student).stem}"
    result = _run(
        partial(student_runs.distill, teacher, config, folder, modalities, resume), folder
    )
    shared.print_either(result, as_json, _print_student, result, run, folder)


def _print_student(result: Mapping[str, Any], run: Path, folder: Path) -> None:
    """Print how a student compares with its teacher, and the next command."""
    typer.echo(
        f"{result['epochs']} epochs, last mean loss {result['loss']:.4f} bits. The student is in "
        f"{folder}"
    )
    _print_problems(result, folder)
    maps = result["map"]
    columns = [maps["teacher->teacher"], maps["student->student"], maps["student->teacher"]]
    rows = []
    for task, chance in result["chance"].items():
        shares = [percent(column.get(task)) for column in columns]
        rows.append([task.replace("->", " → "), *shares, percent(chance)])
    for modality, share in result["agreement"].items():
        rows.append([f"equal bits of {modality}s, %", "", percent(share), "", ""])
    sizes = [result["size"][side] for side in ("teacher", "student")]
    rows.append(["parameters", *[f"{size['parameters']:,}" for size in sizes], "", ""])
    rows.append(["saved model, MB", *[f"{size['bytes'] / 1e6:.2f}" for size in sizes], "", ""])
    counts = result["rows"]
    title = (
        f"{counts['query']} queries, {counts['retrieval']} items, {result['n_bits']} bits; "
        "tie-aware mAP in %"
    )
    shared.print_table(title, ["", "teacher", "student", "student asks teacher", "chance"], rows)
    typer.echo(f"Next: channelhash search {run} --model {folder} --text …")


def export(
    run: shared.SavedModel,
    onnx: bool = typer.Option(
        False, "--onnx", help="Write one ONNX file per modality, described by export.json."
    ),
    sql: bool = typer.Option(
        False, "--sql", help="Write statements for PostgreSQL with pgvector, of fitted codes."
    ),
    modalities: _Modalities = [],
    out: Path | None = typer.Option(
        None, help="Folder to write; RUN/onnx, or of fitted codes RUN/exported, by default."
    ),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Export a model for programs without PyTorch or this one; each ONNX file is run and compared
    with the model.

    A trained model gives its encoders. export.json describes the inputs of each file, how images
    and texts become these, and how outputs become bits. A store of fitted codes gives what makes
    codes of its encoder's vectors: for each modality a script for NumPy, and with --onnx or --sql
    the same for these.

    Example: channelhash export runs/table --onnx --out exported
    """
    from channelhash.models.exported import FOLDER
    from channelhash.models.fitted import FittedModel

    model = models.load_model(run, trust_code)
    if isinstance(model, FittedModel):
        _export_fitted(model, out or run / "exported", modalities, onnx, sql, as_json)
        return
    if sql:
        raise InputError(f"{argument('sql')}: {run} was trained, and only fitted codes go to SQL")
    if not onnx:
        raise InputError(f"export: name the format: channelhash export {run} --onnx")
    _export_trained(model, out or run / FOLDER, modalities, as_json)


def _export_trained(
    model: "HashModel", folder: Path, modalities: Sequence[str], as_json: bool
) -> None:
    """Write an ONNX file for each modality."""
    from channelhash.models.exported import DESCRIPTION, export_onnx

    description = export_onnx(model, folder, modalities)
    entries = description["modalities"]
    files = {modality: str(folder / entry["file"]) for modality, entry in entries.items()}
    differences = {modality: entry["largest_difference"] for modality, entry in entries.items()}
    result = {"out": str(folder), "description": str(folder / DESCRIPTION), "files": files}
    result |= {key: description[key] for key in ("model", "fingerprint", "n_bits")}
    result |= {"largest_difference": differences}
    lines = [
        f"{files[name]}: {name}, outputs equal the model's within {differences[name]:.0e}"
        for name in files
    ]
    shared.show(result, as_json, *lines, f"How to use them: {folder / DESCRIPTION}")


def _export_fitted(
    model: "FittedModel",
    folder: Path,
    modalities: Sequence[str],
    onnx: bool,
    sql: bool,
    as_json: bool,
) -> None:
    """Write a folder of files for each modality."""
    from channelhash.compression.compressor import Compressor
    from channelhash.compression.exports import export_compressor
    from channelhash.data.records import QUESTION

    names = modalities or [name for name in model.modalities if name != QUESTION]
    compressors = {name: Compressor.of_model(model, name) for name in names}
    files = {
        name: [str(file) for file in export_compressor(compressor, folder / name, onnx, sql)]
        for name, compressor in compressors.items()
    }
    result = {"out": str(folder), "files": files, "model": model.name, "n_bits": model.n_bits}
    result |= {"fingerprint": model.fingerprint()}
    shared.show(result, as_json, *(file for written in files.values() for file in written))


configurations = shared.command_group("Show the configurations that ship with the package.")


@configurations.command("list")
def _list(as_json: shared.AsJson = False) -> None:
    """List the configurations that `channelhash train --preset NAME` takes.

    Example: channelhash config list
    """
    from channelhash.presets import presets, summary

    shared.print_names({name: summary(path) for name, path in presets().items()}, as_json)


@configurations.command("show")
def _show(
    name: str = typer.Argument(..., help="Name of a configuration, as config list prints it."),
) -> None:
    """Print a configuration, to change it; `channelhash train FILE` takes what is saved in a file.

    Example: channelhash config show recommended
    """
    from channelhash.presets import preset_path

    typer.echo(preset_path(name).read_text(encoding="utf-8"), nl=False)


_ListedKind = Literal["losses", "models", "encoders", "data", "stores", "experiments"]


def names(
    kind: _ListedKind = typer.Argument(..., help="What to list."), as_json: shared.AsJson = False
) -> None:
    """List the losses, models, encoders, kinds of data, stores or experiments that a configuration
    or command may name.

    Example: channelhash list losses
    """
    shared.print_names(_LISTS[kind](), as_json)


#: The paths that are searched as stores; all other stores have an entry in `STORES`.
_STORE_PATHS = {
    "FOLDER": "made by index create; a folder of photographs is searched as it is",
    "RUN": "a run's folder: its retrieval set, to be read only",
    "FILE.parquet": "codes, to be read only",
}


def _list_encoders() -> dict[str, str]:
    from channelhash.models.description import ENCODER_FORMS

    return {word: meaning.replace("`", "") for word, meaning in ENCODER_FORMS.items()}


def _list_experiments() -> dict[str, str]:
    from channelhash.lab.experiments.experiment import load_experiment
    from channelhash.lab.experiments.studies import EXPERIMENTS

    return {name: load_experiment(name).title for name in EXPERIMENTS}


def _list_losses() -> dict[str, str]:
    from channelhash.losses import LOSSES

    return {name: _first_line(loss) for name, loss in LOSSES.items()}


def _list_models() -> dict[str, str]:
    return {name: _first_line(model.create) for name, model in models.MODELS.items()}


def _list_stores() -> dict[str, str]:
    from channelhash.search import STORES

    return _STORE_PATHS | {
        f"{scheme}ADDRESS": _first_line(store) for scheme, store in STORES.items()
    }


def _list_data() -> dict[str, str]:
    from channelhash.data import DATA_KINDS

    return {name: _first_line(source.load) for name, source in DATA_KINDS.items()}


def _first_line(implementation: Callable[..., Any]) -> str:
    """Return what the file that holds an implementation says in its first line."""
    line = (sys.modules[implementation.__module__].__doc__ or "").partition("\n")[0]
    return line.split("``: ")[-1].replace("`", "")


#: What to list -> how: names and what each means.
_LISTS: dict[_ListedKind, Callable[[], dict[str, str]]] = {
    "losses": _list_losses,
    "models": _list_models,
    "encoders": _list_encoders,
    "data": _list_data,
    "stores": _list_stores,
    "experiments": _list_experiments,
}
