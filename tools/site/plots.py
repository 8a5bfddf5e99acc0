"""Draw the plots of the documentation from the published raw scores.

python tools/site/plots.py
"""

from pathlib import Path

from channelhash.lab.experiments.results import read_runs
from channelhash.lab.experiments.studies.weights import tuning_plot
from channelhash.utils.files import atomic_path
from channelhash.utils.plotting import RESOLUTION

DOCS = Path(__file__).parents[2] / "docs"
SCORES = DOCS / "reference" / "results" / "tables" / "weights-coco17-runs.csv.gz"


def main() -> None:
    """Write the plot of Which loss?"""
    figure = tuning_plot(read_runs(SCORES)[""])
    with atomic_path(DOCS / "images" / "which-loss.png") as path:
        figure.savefig(path, dpi=RESOLUTION, format="png")


if __name__ == "__main__":
    main()
