"""Tables of ``experiment channels``."""

from collections.abc import Sequence

from channelhash.experiments.channel_shapes import weights_of
from channelhash.experiments.rendering import Cell, Table
from channelhash.experiments.results import Result
from channelhash.experiments.tuning import best_trials, validation_score


def trials_table(trials: Sequence[Result]) -> Table:
    """What each trial of the weights scored on validation; the chosen ones are bold."""
    columns = sorted({weights_of(result) for result in trials})
    best = best_trials(trials)
    rows = []
    for method in dict.fromkeys(result.method for result in trials):
        mine = {weights_of(result): result for result in trials if result.method == method}
        cells = [
            Cell(f"{100 * validation_score(run):.2f}" if run.status == "finished" else run.status, run is best[method])
            for run in (mine[weights] for weights in columns)
        ]
        rows.append((Cell(method), *cells))
    return Table(
        "trials",
        "Weights beside the channel on validation",
        ("Method", *(f"κ_q {kappa:g}, AP {per_bit:g} k" for kappa, per_bit in columns)),
        tuple(rows),
        "Mean mAP of image → text and text → image on validation after the last epoch, in percent; 32 bits, seed 0. "
        "Bold: the weights that the method is compared at, at every code length: κ_q of the quantisation error, and of "
        "the direct AP term times the code length k.",
        labels=1,
    )
