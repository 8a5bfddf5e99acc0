"""``channelhash recall``"""

from pathlib import Path

import typer

from channelhash.cli.evaluate import Checkpoint
from channelhash.cli.options import AsJson, TrustCode
from channelhash.cli.output import print_json, print_recall, progress_bars
from channelhash.cli.stopping import when_stopped


def recall(
    model: Path = typer.Argument(..., help="A run's folder, a saved model, or photo."),
    data: Path = typer.Argument(..., help="A table of images and texts; of a run's own only test queries ask."),
    images: int | None = typer.Option(None, min=1, help="Images of a test, e.g. 1000: means of all such tests."),
    checkpoint: Checkpoint = typer.Option(Checkpoint.last, help="For a run: the last epoch, or the best."),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Say how often texts find their images and images their texts: by real values, by bits, and by both.

    Example: channelhash recall photo captions.csv
    """
    from channelhash.runs.evaluate import evaluate_pairs

    when_stopped("features of images are kept, scores are printed at the end")
    with progress_bars() as progress:
        result = evaluate_pairs(model, data, images, checkpoint.value, progress)
    if as_json:
        print_json(result)
    else:
        print_recall(result)
