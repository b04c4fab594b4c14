"""A process together with everything that it started, as one thing that can be ended (F46).

The first process is the leader of a session and a process group of its own. Members are found in the process table: who
is in the group or the session, who descends from a member, and, on Linux, who carries the group's marker in the
environment. So a daemon that has left the session is found too; one that has in addition emptied its environment, and
whose parent is gone, is not.

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
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from heaveto.errors import ConfigError
from heaveto.tools import orphans

_T = TypeVar("_T")

TERM_SECONDS = 0.5
"""How long members may take to end after TERM. Within a run's cancel grace of 2 s, with time to spare for KILL."""
KILL_SECONDS = 1.0
"""How long the end of killed processes is waited for. What is left then hangs in the kernel, or belongs to others."""
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.005, 0.05
_IS_LINUX = sys.platform == "linux"
_GONE = (ProcessLookupError, PermissionError)


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """A row of the process table. `started` tells processes apart that had the same id one after another."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    name: str
    is_dead: bool


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
        orphans.WATCHER.add(self.pid, self.marker)

    @property
    def pid(self) -> int:
        """The leader's process id, which is the group's and the session's too."""
        return self.process.pid

    @property
    def has_exited(self) -> bool:
        """Whether the leader has ended; it is not reaped by looking, so that its id stays taken."""
        if not _IS_LINUX:  # os.waitid is not everywhere
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
            with suppress(*_GONE):
                os.killpg(self.pid, signal.SIGKILL)
            _send_each(members, signal.SIGKILL)
        else:
            new = (member for member in members if member.pid not in met)
            _send_each(new, signal.SIGTERM, signal.SIGCONT)  # one that is halted could not take TERM

    def _reap(self, seconds: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            orphans.WATCHER.remove(self.pid)


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


def find_members(leader: int, marker: str, met: Mapping[int, ProcessInfo] | None = None) -> list[ProcessInfo]:
    """Return the living members of a group, without this process; `met` are known to be members."""
    table = process_table()
    first = table.get(leader)
    since = first.started if first is not None else 0
    known = {pid for pid, process in (met or {}).items() if pid in table and table[pid].started == process.started}
    for process in table.values():
        if leader in (process.pid, process.group, process.session) or (
            process.started >= since and _carries(process.pid, marker)
        ):
            known.add(process.pid)
    _add_descendants(known, table)
    known.discard(os.getpid())
    return [table[pid] for pid in sorted(known) if not table[pid].is_dead]


def _add_descendants(known: set[int], table: Mapping[int, ProcessInfo]) -> None:
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    open_ends = list(known)
    while open_ends:
        new = [child for child in children.get(open_ends.pop(), ()) if child not in known]
        known.update(new)
        open_ends.extend(new)


def _send_each(members: Iterable[ProcessInfo], *signals: signal.Signals) -> None:
    for member in members:
        with suppress(*_GONE):
            for number in signals:
                _send(member, number)


def _send(member: ProcessInfo, number: signal.Signals) -> None:
    """Signal this process, and no other one that may have got its id meanwhile."""
    if not _IS_LINUX:
        os.kill(member.pid, number)
        return
    try:
        fd = os.pidfd_open(member.pid)
    except OSError as error:
        if isinstance(error, _GONE):
            return
        os.kill(member.pid, number)  # a kernel without process descriptors
        return
    try:
        now = _read_stat(member.pid)
        if now is not None and now.started == member.started:
            signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)


# --- the process table --------------------------------------------------------------------------------------------


def process_table() -> dict[int, ProcessInfo]:
    """Return all processes that can be seen, by id."""
    rows = _table_of_linux() if _IS_LINUX else table_of_ps()
    return {row.pid: row for row in rows}


def _table_of_linux() -> list[ProcessInfo]:
    rows = (_read_stat(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return [row for row in rows if row is not None]


def _read_stat(pid: int) -> ProcessInfo | None:
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    except OSError:  # it has ended
        return None
    name, _, rest = line.partition("(")[2].rpartition(")")  # a name may hold parentheses
    fields = rest.split()
    is_dead = fields[0] in "ZX" and int(fields[17]) <= 1  # else its first thread has ended, and others go on
    return ProcessInfo(
        pid=pid, parent=int(fields[1]), group=int(fields[2]), session=int(fields[3]), started=int(fields[19]),
        name=name, is_dead=is_dead,
    )  # fmt: skip


def _carries(pid: int, marker: str) -> bool:
    """Whether a process was started with the marker in its environment."""
    if not _IS_LINUX:
        return False
    try:
        return f"{marker}=1\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or belongs to somebody else
        return False


def table_of_ps() -> list[ProcessInfo]:
    """Return the process table as ``ps`` tells it, where there is no ``/proc``."""
    command = ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,comm="]
    listed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    rows: list[ProcessInfo] = []
    for line in listed.splitlines():
        pid, parent, group, state, name = line.split(None, 4)
        rows.append(ProcessInfo(int(pid), int(parent), int(group), 0, 0, name.strip(), state.startswith("Z")))
    return rows


# --- waiting ------------------------------------------------------------------------------------------------------


def in_thread(function: Callable[[], _T], *, name: str) -> Future[_T]:
    """Call a blocking function in a daemon thread of its own, whatever other threads are busy with."""
    future: Future[_T] = Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - handed over, whatever it is
            future.set_exception(error)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future


async def wait_through_cancels(work: Future[_T]) -> bool:
    """Wait for the end of a thread's work; return whether this task was cancelled meanwhile, however often.

    The caller raises `asyncio.CancelledError` if so, when it has made use of the result.
    """
    interrupted = False
    waiter = asyncio.wrap_future(work)
    waiter.add_done_callback(lambda done: done.exception())  # looked at: the caller asks the thread's own future
    while not waiter.done():
        try:
            await asyncio.wait({waiter})
        except asyncio.CancelledError:
            interrupted = True
    return interrupted
