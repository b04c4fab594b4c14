"""What ends process groups whose program was killed with kill -9 and can end nothing any more.

One small shell per program, started with its first group, outside of it: no child of ours, in a session of its own. It
reads which groups there are from a pipe, whose end is the program's end, however that comes. What is there then gets
TERM, and KILL a second later: the group, and who carries its marker in the environment. Starting a process costs one
write more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress

_SHELL = "/bin/sh"
_SCRIPT = r"""
exec 3<&0
{
groups=
while read -r change group marker; do
    case $change in
    +) groups="$groups $group:$marker" ;;
    *)
        kept=
        for one in $groups; do [ "${one%%:*}" = "$group" ] || kept="$kept $one"; done
        groups=$kept
        ;;
    esac
done
[ -n "$groups" ] || exit 0
for signal in TERM KILL; do
    for one in $groups; do
        kill -"$signal" -"${one%%:*}"
        for place in $(grep -ls "${one#*:}" /proc/[0-9]*/environ); do
            place=${place#/proc/}
            kill -"$signal" "${place%/environ}"
        done
    done
    [ "$signal" = KILL ] || sleep 1
done
} <&3 >/dev/null 2>&1 &
"""


class Watcher:
    """Says to the shell which groups there are. A shell that has died is replaced for those to come.

    One that is slow is never waited for, and never let go of: it would take that for the end of this program, and end
    groups that live.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._unsaid: deque[bytes] = deque()

    def add(self, group: int, marker: str) -> None:
        """See to it that a group ends with this program."""
        with self._lock:
            if self._pipe is None:
                self._pipe = _start()
            self._say(f"+ {group} {marker}\n")

    def remove(self, group: int) -> None:
        """The group has ended: its id may come to mean another one."""
        with self._lock:
            self._say(f"- {group} -\n")

    def _say(self, line: str) -> None:
        if self._pipe is None:
            return
        self._unsaid.append(line.encode())
        try:
            while self._unsaid:
                os.write(self._pipe, self._unsaid[0])  # whole or not at all: it is shorter than PIPE_BUF
                self._unsaid.popleft()
        except BlockingIOError:
            pass  # said with the next line
        except OSError:
            self.forget()

    def forget(self) -> None:
        """Let go of the shell; in a process that was forked, it is the parent's."""
        self._unsaid.clear()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            with suppress(OSError):
                os.close(pipe)


def _start() -> int | None:
    """Start the shell and return the pipe to it; None where there is no shell."""
    reading, writing = os.pipe()
    try:
        # Without our environment, so that no group that we belong to counts it as a member.
        subprocess.run(
            [_SHELL, "-c", _SCRIPT], stdin=reading, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, env={"PATH": os.environ.get("PATH", os.defpath)}, cwd="/", check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        os.close(writing)
        return None
    finally:
        os.close(reading)
    os.set_blocking(writing, False)
    return writing


watcher = Watcher()


def _after_fork() -> None:
    global watcher  # noqa: PLW0603 - its lock may be held by a thread that is not here
    watcher.forget()
    watcher = Watcher()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)
