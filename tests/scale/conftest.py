import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """A local Ray with two workers, started once; its address."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        if "RAY_AUTH_MODE" not in os.environ:
            patch.setenv("RAY_AUTH_MODE", "disabled")  # no token in the home folder
        patch.delenv("RAY_ADDRESS", raising=False)
        # Workers import the tests' own workers.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        context = ray.init(
            address="local",
            num_cpus=2,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=80 << 20,
            log_to_driver=False,
            logging_level="ERROR",
        )
        yield context.address_info["gcs_address"]
        ray.shutdown()
