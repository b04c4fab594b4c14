"""The parent's ends of a command's pipes, read and written as the event loop finds them ready."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import IO, Any

from heaveto.tools.command.kept_output import KeptOutput

_READ_BYTES = 64 * 1024
_READS_AT_THE_END = 32
"""How much more is read when the command has ended: what a pipe holds, and not what a survivor goes on writing."""


class PipeReader:
    """Reads a pipe as it fills."""

    def __init__(self, pipe: IO[Any], limit: int, show: Callable[[str], None]) -> None:
        self.kept = KeptOutput(limit)
        self._pipe, self._show = pipe, show
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def close(self) -> None:
        """Take what is left in the pipe, and close it, whoever else may hold it open."""
        for _ in range(_READS_AT_THE_END):
            if self._pipe.closed or not self._read():
                break
        self._stop()
        self._show(self.kept.finish())

    def _read(self) -> bool:
        try:
            data = os.read(self._pipe.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._show(self.kept.feed(data))
        else:
            self._stop()
        return bool(data)

    def _stop(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()


class PipeWriter:
    """Writes the input as the command takes it, and closes the pipe behind it."""

    def __init__(self, pipe: IO[Any], data: bytes) -> None:
        self._pipe, self._left = pipe, memoryview(data)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_writer(pipe.fileno(), self._write)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._pipe.fileno(), self._left) :]
        except BlockingIOError:
            return
        except OSError:  # the command does not read it
            self._left = self._left[:0]
        if not self._left:
            self.close()

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()
