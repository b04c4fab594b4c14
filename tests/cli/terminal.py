"""The command line as a user has it: real processes, and a real terminal with a Ctrl-C that is typed."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

_PATIENCE_SECONDS = 20.0
_OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
)
CTRL_C, CTRL_D = "\x03", "\x04"


def heaveto(*arguments: str | Path) -> list[str]:
    """The command with its arguments; warnings are errors."""
    return [sys.executable, "-W", "error", "-m", "heaveto.cli", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    """The environment without keys."""
    return {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")} | more


def call(
    *arguments: str | Path, given: str = "", cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, without a terminal."""
    return subprocess.run(
        heaveto(*arguments), input=given, cwd=cwd, env=environment(**more), capture_output=True, text=True,
        timeout=_PATIENCE_SECONDS * 2, check=False,
    )  # fmt: skip


class Terminal:
    """The command in a terminal of its own. What is typed is echoed, as in every terminal."""

    def __init__(self, *arguments: str | Path, cwd: Path) -> None:
        self._master, slave = pty.openpty()
        command = [sys.executable, "-c", _OWN_TERMINAL, *heaveto(*arguments)]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=environment(TERM="xterm"),
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._unread = ""
        self.shown = ""

    def type(self, text: str) -> None:
        """Type text; a line needs its newline."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> float:
        """Read until `text` was shown behind what was waited for before; return how many seconds it took."""
        begun = time.monotonic()
        while text not in self._unread:
            left = begun + _PATIENCE_SECONDS - time.monotonic()
            ready, _, _ = select.select([self._master], [], [], max(0.0, left))
            assert ready, f"waited in vain for {text!r}; shown so far: {self.shown!r}"
            self._read()
        self._unread = self._unread.partition(text)[2]
        return time.monotonic() - begun

    def _read(self) -> None:
        try:
            piece = os.read(self._master, 4096).decode(errors="replace")
        except OSError:  # the other side is closed
            piece = ""
        assert piece, f"it ended; shown so far: {self.shown!r}"
        self._unread += piece
        self.shown += piece

    def end(self) -> int:
        """Wait for the process and return its exit code."""
        return self.process.wait(_PATIENCE_SECONDS)

    def end_by(self, key: str) -> int:
        """Press a key until the process ends, and return its exit code.

        Python's own `input` misses a Ctrl-C that comes between its prompt and its first wait; a person presses again.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            with suppress(OSError):  # the other side is closed
                self.type(key)
            with suppress(subprocess.TimeoutExpired):
                return self.process.wait(2.0)
        raise AssertionError(f"it did not end; shown so far: {self.shown!r}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
