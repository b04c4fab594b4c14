"""Commands of a program that was killed with kill -9: they end without it, with everything that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heaveto.tools.orphans import Watcher

VICTIM = """
import sys, time
from heaveto.tools.group import ProcessGroup
script = "echo $$ > {place}/a; sleep 600 & echo $! > {place}/b; setsid sleep 600 & echo $! > {place}/c; "
script += "trap '' TERM; while :; do sleep 1; done"
group = ProcessGroup(["/bin/sh", "-c", script])
ended = ProcessGroup(["/bin/true"])
ended.end()
print("up", flush=True)
time.sleep(600)
"""


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)  # of processes that are nobody's children there is nothing else to wait for


@pytest.mark.skipif(sys.platform != "linux", reason="looks into the process table")
def test_a_command_does_not_outlive_a_program_that_is_killed(tmp_path: Path) -> None:
    """The command, which ignores TERM, its child, and one that left its session end with the program (F46)."""
    code = VICTIM.replace("{place}", str(tmp_path))
    victim = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "up\n"
    wait_for(lambda: all((tmp_path / name).exists() and (tmp_path / name).read_text().strip() for name in "abc"))
    pids = [int((tmp_path / name).read_text()) for name in "abc"]
    assert not any(has_ended(pid) for pid in pids)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stdout.close()
    wait_for(lambda: all(has_ended(pid) for pid in pids))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into the process table")
def test_a_group_that_has_ended_is_not_looked_for_any_more(tmp_path: Path) -> None:
    """Its id may come to mean another group; and a program that ends in order ends nothing else."""
    code = (
        "from heaveto.tools.group import ProcessGroup\n"
        "import os, subprocess\n"
        "other = subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3, stderr=-3)\n"
        "print(other.pid, flush=True)\n"
        "group = ProcessGroup(['/bin/true'])\n"
        "group.end()\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    other = int(done.stdout)
    assert not has_ended(other)
    os.kill(other, signal.SIGKILL)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")
def test_a_shell_that_is_slow_is_told_later_and_never_let_go_of() -> None:
    """A closed pipe means the end of this program: groups that live would be ended. So nothing is lost or reordered."""
    watcher = Watcher()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(writing, b"x")
    watcher._pipe = writing  # pyright: ignore[reportPrivateUsage]
    watcher.add(7, "a")
    watcher.remove(7)
    assert os.read(reading, filled) == b"x" * filled
    watcher.add(8, "b")
    assert os.read(reading, 100) == b"+ 7 a\n- 7 -\n+ 8 b\n"
    os.close(reading)
    watcher.remove(8)  # nobody reads any more
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)
