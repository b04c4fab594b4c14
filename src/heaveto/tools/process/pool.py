"""Workers: started when needed, kept warm when idle, ended with the interpreter."""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from subprocess import DEVNULL

from heaveto.tools.group import ProcessGroup

MAX_IDLE = 4
"""How many idle workers are kept."""
_EXIT_SECONDS = 1.0
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from heaveto.tools.process.worker import main; main(int(sys.argv[2]), sys.argv[3])"
)


class WorkerProcess:
    """A worker as its parent sees it. `calls` counts what it was given; `socket` does not block."""

    def __init__(self) -> None:
        self.calls = 0
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        try:
            self.group = _start(theirs)
        except BaseException:
            self.socket.close()
            raise
        finally:
            theirs.close()

    @property
    def is_usable(self) -> bool:
        return not self.group.has_exited

    def forget(self) -> None:
        """This is a forked process, and the worker is not its child."""
        self.socket.close()
        self.group.process.returncode = 0  # else its destructor would complain


def _start(theirs: socket.socket) -> ProcessGroup:
    path = json.dumps([os.path.abspath(entry) for entry in sys.path])
    return ProcessGroup(
        lambda marker: [sys.executable, "-c", _BOOT, path, str(theirs.fileno()), marker],
        stdin=DEVNULL, pass_fds=[theirs.fileno()],
    )  # fmt: skip


_idle: list[WorkerProcess] = []
_lock = threading.Lock()


def take() -> WorkerProcess:
    """Return an idle worker, or a new one. Who takes it gives it back, or ends it."""
    with _lock:
        while _idle:
            worker = _idle.pop()
            if worker.is_usable:
                return worker
            worker.socket.close()
            worker.group.process.poll()
    return WorkerProcess()


def give_back(worker: WorkerProcess) -> bool:
    """Keep a worker for the next call; return whether there was room for it."""
    with _lock:
        has_room = len(_idle) < MAX_IDLE and worker.is_usable
        if has_room:
            _idle.append(worker)
        return has_room


def end_idle_workers() -> None:
    """End the idle workers; blocks until they have ended. Done when the interpreter exits."""
    with _lock:
        workers = _idle[:]
        _idle.clear()
    for worker in workers:
        worker.socket.close()  # it ends by itself, as after its parent's death
    end = time.monotonic() + _EXIT_SECONDS
    while time.monotonic() < end and any(worker.is_usable for worker in workers):
        time.sleep(0.005)
    for worker in workers:
        worker.group.end(term_seconds=0)


def _forget_workers() -> None:
    """Leave the workers to the process that this one was forked from."""
    for worker in _idle:
        with suppress(OSError):
            worker.forget()
    _idle.clear()
    _lock.release()


atexit.register(end_idle_workers)
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget_workers)
