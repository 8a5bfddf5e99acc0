"""Parts of a Ray cluster that start late or not at all; test_ray_nodes.py runs whole clusters."""

import signal
import subprocess
import sys

import pytest

from scale.ray_cluster import _started


@pytest.mark.parametrize(("message", "tries"), [("The current node timed out during startup.", 2), ("no port", 1)])
def test_what_a_failed_start_has_begun_is_killed_and_a_late_one_is_tried_again(message, tries):
    begun = []

    def start() -> str:
        if len(begun) == 1:
            begun.append(None)
            return "a node"
        begun.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        raise RuntimeError(message)

    if tries == 2:
        assert _started(start) == "a node"
    else:
        with pytest.raises(RuntimeError, match=message):
            _started(start)
    assert len(begun) == tries
    assert begun[0].wait(60) == -signal.SIGKILL
