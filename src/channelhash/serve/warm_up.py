"""What the first requests would wait for, made ready in the background while others are answered."""

import logging
import threading
from collections.abc import Callable, Mapping

from channelhash.errors import InputError, JobError


class WarmUp:
    """Steps that run one after the other in a thread of their own.

    Args:
        steps: what is loaded, in words -> the step.

    >>> warm_up = WarmUp({"the items": list})
    >>> warm_up.start()
    >>> warm_up.stop()
    >>> warm_up.loading
    []
    """

    def __init__(self, steps: Mapping[str, Callable[[], object]]) -> None:
        self._steps = dict(steps)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="warm-up")
        #: What is not ready yet, in words.
        self.loading = list(steps)

    def add(self, what: str, step: Callable[[], object]) -> None:
        """Add a last step, before `start`."""
        self._steps[what] = step
        self.loading.append(what)

    def start(self) -> None:
        """Begin with the first step."""
        self._thread.start()

    def stop(self) -> None:
        """Let the step that runs finish, and leave the others."""
        self._stopped = True
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        for what, step in self._steps.items():
            try:
                if not self._stopped:
                    step()
            except (InputError, JobError) as error:  # requests that need it say so, too
                logging.getLogger("channelhash.serve").warning("%s: %s", what, error)
            self.loading = self.loading[1:]
