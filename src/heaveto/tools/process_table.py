"""The process table: what runs, which of it belongs to a group, and a signal to exactly one process.

Members of a group are who is in the group or the session, who descends from a member, and, on Linux, who carries the
group's marker in the environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

IS_LINUX = sys.platform == "linux"
GONE = (ProcessLookupError, PermissionError)


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


def process_table() -> dict[int, ProcessInfo]:
    """Return all processes that can be seen, by id."""
    rows = _table_of_linux() if IS_LINUX else table_of_ps()
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
    if not IS_LINUX:
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


def send_each(members: Iterable[ProcessInfo], *signals: signal.Signals) -> None:
    """Send signals to processes; those that are gone, or belong to somebody else, are passed over."""
    for member in members:
        with suppress(*GONE):
            for number in signals:
                _send(member, number)


def _send(member: ProcessInfo, number: signal.Signals) -> None:
    """Signal this process, and no other one that may have got its id meanwhile."""
    if not IS_LINUX:
        os.kill(member.pid, number)
        return
    try:
        fd = os.pidfd_open(member.pid)
    except OSError as error:
        if isinstance(error, GONE):
            return
        os.kill(member.pid, number)  # a kernel without process descriptors
        return
    try:
        now = _read_stat(member.pid)
        if now is not None and now.started == member.started:
            signal.pidfd_send_signal(fd, number)
    finally:
        os.close(fd)
