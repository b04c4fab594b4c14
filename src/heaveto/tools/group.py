"""A process together with everything that it started, as one thing that can be ended (F46).

The first process is the leader of a session and a process group of its own. Members are found in the process table,
also by a marker in the environment. So a daemon that has left the session is found too; one that has in addition
emptied its environment, and whose parent is gone, is not.

The leader is not reaped before the end, so that its id, which is the group's, cannot come to mean another process. The
ending is done by a thread of its own: neither a cancelled task nor an event loop that is closed can interrupt it.
asyncio's own subprocesses are not used: they know one process, and their transports wait for pipes that a grandchild
holds.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from heaveto.errors import ConfigError
from heaveto.tools import orphans
from heaveto.tools.process_table import GONE, IS_LINUX, ProcessInfo, find_members, send_each
from heaveto.tools.threads import in_thread

TERM_SECONDS = 0.5
"""How long members may take to end after TERM. Within a run's cancel grace of 2 s, with time to spare for KILL."""
KILL_SECONDS = 1.0
"""How long the end of killed processes is waited for. What is left then hangs in the kernel, or belongs to others."""
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.005, 0.05


@dataclass(frozen=True, slots=True)
class Ending:
    """What the end of a group found: the members besides the leader that had to be ended, and those that live on."""

    ended: tuple[ProcessInfo, ...] = ()
    survivors: tuple[ProcessInfo, ...] = ()


class ProcessGroup:
    """A started process and what it started. End it, on every path."""

    def __init__(
        self,
        argv: Sequence[str] | Callable[[str], Sequence[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        """Start the process; `argv` may be made from the marker; `options` are those of `subprocess.Popen`.

        Raises:
            OSError: there is no such program or directory, or it may not be executed.
            ConfigError: this is Windows.
        """
        if sys.platform == "win32":
            raise ConfigError("commands and worker processes need process groups, which Windows does not have")
        self.marker = f"HEAVETO_GROUP_{secrets.token_hex(8)}"
        environment = {**(os.environ if env is None else env), self.marker: "1"}
        command = list(argv(self.marker) if callable(argv) else argv)
        self.process = subprocess.Popen(command, env=environment, cwd=cwd, start_new_session=True, **options)
        orphans.watcher.add(self.pid, self.marker)

    @property
    def pid(self) -> int:
        """The leader's process id, which is the group's and the session's too."""
        return self.process.pid

    @property
    def has_exited(self) -> bool:
        """Whether the leader has ended; it is not reaped by looking, so that its id stays taken."""
        if not IS_LINUX:  # os.waitid is not everywhere
            return self.process.poll() is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    async def exited(self) -> None:
        """Wait for the leader's end. Safe to cancel."""
        seen = asyncio.Event()
        unwatch = self.watch_exit(seen.set)
        try:
            await seen.wait()
        finally:
            unwatch()

    def watch_exit(self, seen: Callable[[], None]) -> Callable[[], None]:
        """Call `seen` on this event loop when the leader has ended; what is returned ends the watch."""
        loop = asyncio.get_running_loop()
        try:
            fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or an old kernel
            return _Polling(loop, self, seen).stop
        loop.add_reader(fd, seen)

        def unwatch() -> None:
            loop.remove_reader(fd)
            os.close(fd)

        return unwatch

    def start_ending(self, term_seconds: float = TERM_SECONDS, *, leave_seconds: float = 0.0) -> Future[Ending]:
        """Begin `end` in a thread; what the future gives is the end."""
        return in_thread(lambda: self.end(term_seconds, leave_seconds=leave_seconds), name=f"heaveto end of {self.pid}")

    def end(self, term_seconds: float = TERM_SECONDS, *, leave_seconds: float = 0.0) -> Ending:
        """End all members, and reap the leader. Blocks the thread.

        They have `leave_seconds` to end by themselves; then get TERM and have `term_seconds`; then get KILL.
        """
        leave_end = time.monotonic() + leave_seconds
        term_end = leave_end + term_seconds
        kill_end = term_end + KILL_SECONDS
        met: dict[int, ProcessInfo] = {}
        left = find_members(self.pid, self.marker, met)
        pause = _FIRST_LOOK_SECONDS
        while left and (now := time.monotonic()) < kill_end:
            if now >= leave_end:
                self._signal(left, met, is_last=now >= term_end)
                met.update((member.pid, member) for member in left)
            time.sleep(pause)
            pause = min(2 * pause, _LAST_LOOK_SECONDS)
            left = find_members(self.pid, self.marker, met)
        self._reap(max(0.0, kill_end - time.monotonic()))
        living = {member.pid for member in left}
        ended = (member for member in met.values() if member.pid not in living and member.pid != self.pid)
        return Ending(tuple(ended), tuple(left))

    def _signal(self, members: Sequence[ProcessInfo], met: Mapping[int, ProcessInfo], *, is_last: bool) -> None:
        if is_last:
            with suppress(*GONE):
                os.killpg(self.pid, signal.SIGKILL)
            send_each(members, signal.SIGKILL)
        else:
            new = (member for member in members if member.pid not in met)
            send_each(new, signal.SIGTERM, signal.SIGCONT)  # one that is halted could not take TERM

    def _reap(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            orphans.watcher.remove(self.pid)


class _Polling:
    """Looks for the end of a leader again and again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, group: ProcessGroup, seen: Callable[[], None]) -> None:
        self._loop, self._group, self._seen = loop, group, seen
        self._pause = _FIRST_LOOK_SECONDS
        self._timer = loop.call_later(self._pause, self._look)

    def _look(self) -> None:
        if self._group.has_exited:
            self._seen()
            return
        self._pause = min(2 * self._pause, _LAST_LOOK_SECONDS)
        self._timer = self._loop.call_later(self._pause, self._look)

    def stop(self) -> None:
        self._timer.cancel()
