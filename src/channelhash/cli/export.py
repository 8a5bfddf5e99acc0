"""``channelhash export``"""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Modalities, SavedModel, TrustCode
from channelhash.cli.output import print_json
from channelhash.errors import InputError


def export(
    run: SavedModel,
    onnx: bool = typer.Option(False, "--onnx", help="Write one ONNX file per modality, described by export.json."),
    modalities: Modalities = [],
    out: Path | None = typer.Option(None, help="Folder to write, new or empty; RUN/onnx by default."),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Export a trained model's encoders for programs without PyTorch; each file is run and compared with the model.

    export.json describes the inputs of each file, how pictures and texts become these, and how outputs become bits.

    Example: channelhash export runs/table --onnx --out exported
    """
    if not onnx:
        raise InputError(f"export: name the format: channelhash export {run} --onnx")
    from channelhash.models import load_model
    from channelhash.models.exported import DESCRIPTION, FOLDER
    from channelhash.models.onnx_export import export_onnx

    folder = out or run / FOLDER
    description = export_onnx(load_model(run), folder, modalities)
    written = description["modalities"]
    if as_json:
        keys = ("model", "fingerprint", "n_bits")
        files = {modality: str(folder / entry["file"]) for modality, entry in written.items()}
        differences = {modality: entry["largest_difference"] for modality, entry in written.items()}
        about = {"out": str(folder), "description": str(folder / DESCRIPTION), "files": files}
        print_json({**about, **{key: description[key] for key in keys}, "largest_difference": differences})
        return
    for modality, entry in written.items():
        within = f"outputs equal the model's within {entry['largest_difference']:.0e}"
        typer.echo(f"{folder / entry['file']}: {modality}, {within}")
    typer.echo(f"How to use them: {folder / DESCRIPTION}")
