"""The audit log: each write is noted before it begins and when it has ended."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import HTTPException

from channelhash.errors import InputError


class AuditLog:
    """Append a line of JSON for each event to a file, and wait until the disk has it.

    The file is opened for every line, so that it may be renamed at any time (logrotate); each line is one append.

    Args:
        path: the file.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._append(b"")
        except OSError as error:
            raise InputError(f"--audit-log {path}: cannot be written ({error.strerror})") from None

    @contextmanager
    def noted(self, **facts: Any) -> Iterator[None]:
        """Note a write: a line with ``facts`` before the block, and one with the status after it.

        Raises:
            HTTPException: 503, the first line cannot be written: the block does not run; 500, the last line cannot be
                written: what the block has written stays.
        """
        write = uuid.uuid4().hex[:12]
        try:
            self._note(write, "begins", facts)
        except OSError as error:
            line = f"the audit log cannot be written ({error.strerror}): nothing was changed; try again later"
            raise HTTPException(503, line, {"Retry-After": "60"}) from None
        result = "done"
        try:
            yield
        except Exception as error:
            result = f"refused: {error}" if isinstance(error, InputError) else f"failed: {type(error).__name__}"
            raise
        finally:
            try:
                self._note(write, "ends", {"result": result[:300]})
            except OSError as error:
                line = f"the audit log cannot be written ({error.strerror}) after the write, which is {result[:100]}"
                raise HTTPException(500, line) from None

    def _note(self, write: str, event: str, facts: dict[str, Any]) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._append(json.dumps({"time": time, "write": write, "event": event, **facts}).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(None, "no space left on its disk")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
