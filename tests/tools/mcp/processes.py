"""The processes and files of this process, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path


def children(pid: int | None = None) -> list[int]:
    """Return the process ids of all descendants, those that are not waited for included.

    Not those that `multiprocessing` keeps for itself, and for good, once any test has used its fork server.
    """
    tasks = Path(f"/proc/{pid or os.getpid()}/task")
    found = [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]
    found = [child for child in found if not serves_multiprocessing(child)]
    return found + [grandchild for child in found for grandchild in children(child)]


def serves_multiprocessing(pid: int) -> bool:
    """Whether it is the fork server or the resource tracker of `multiprocessing`."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"from multiprocessing.forkserver import" in command or b"from multiprocessing.resource_tracker" in command


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        return (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
