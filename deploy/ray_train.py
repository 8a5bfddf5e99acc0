"""Train one model on the workers of a Ray cluster, with Ray Train.

    python deploy/ray_train.py configs/cliphash.yaml --out /shared/runs/clip --workers 16 --gpu

Every worker sees the collection and the run's folder at the same path. A cluster that is already
there is named by RAY_ADDRESS; without one, Ray starts on this machine.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train_here(job: dict[str, Any]) -> None:
    """Train in each worker as ``channelhash train`` does; Ray Train has already joined the
    processes.
    """
    from channelhash.config import read_config
    from channelhash.runs.train import start_run

    os.chdir(
        job["folder"]
    )  # paths in the configuration are those of the caller; Ray starts workers elsewhere
    start_run(read_config(Path(job["config"]), job["settings"]), Path(job["out"]), resume=True)


def main() -> None:
    """Parse, and run until the last epoch; a worker that dies is replaced, up to three times."""
    parser = argparse.ArgumentParser(description="Train on the workers of a Ray cluster.")
    parser.add_argument("config", help="YAML file as for `channelhash train`")
    parser.add_argument("--out", required=True, help="the run's folder, seen by all workers")
    parser.add_argument(
        "--workers", type=int, default=2, help="processes that share each batch evenly"
    )
    parser.add_argument("--gpu", action="store_true", help="one GPU a worker")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="section.key=value"
    )
    options = parser.parse_args()
    job = {
        "config": options.config,
        "out": str(Path(options.out).absolute()),
        "settings": options.settings,
        "folder": os.getcwd(),
    }
    # Named, because Ray would join a cluster that anybody has begun on this machine.
    ray.init(address=os.environ.get("RAY_ADDRESS") or "local")
    # Ray's own notes on the job lie beside the run's folder, which holds nothing but the run.
    notes = Path(job["out"]).parent / "ray-train"
    trainer = TorchTrainer(
        train_here,
        train_loop_config=job,
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(
            name=Path(job["out"]).name,
            storage_path=str(notes),
            failure_config=FailureConfig(max_failures=3),
        ),
    )
    trainer.fit()
    print(f"The run is in {job['out']}")


if __name__ == "__main__":
    main()
