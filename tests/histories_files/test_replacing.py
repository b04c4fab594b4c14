"""Replacing a file: killed at any step, or on a full disk, the file is the old one or the new one, whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.histories_files.transcripts import CLAUDE_CODE, TALK

from heaveto.histories.files import repair_file

BROKEN = CLAUDE_CODE.write(TALK[:7])
STEPS = ("mkstemp", "write", "fchmod", "fsync", "link", "replace", "fsync of the directory")
_KILLED = """
import os, sys, tempfile
from pathlib import Path
path, step, moment = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
from heaveto.cli import replacing

def deadly(holder, name, count=1):
    real, calls = getattr(holder, name), []
    def call(*args, **options):
        calls.append(1)
        if len(calls) == count and moment == "before":
            os._exit(9)
        result = real(*args, **options)
        if len(calls) == count and moment == "after":
            os._exit(9)
        return result
    setattr(holder, name, call)

match step:
    case "mkstemp": deadly(tempfile, "mkstemp")
    case "write": deadly(os, "fdopen")
    case "fchmod": deadly(os, "fchmod")
    case "fsync": deadly(os, "fsync")
    case "link": deadly(os, "link")
    case "replace": deadly(Path, "replace")
    case _: deadly(os, "fsync", 2)
original = replacing.Original.read(path)
from heaveto.histories.files import repair_file
replacing.replace_file(original, repair_file(original.data).output)
"""
_FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
from heaveto.cli.group import heaveto
heaveto(["repair", "--in-place", sys.argv[1]])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_process_killed_on_the_way_leaves_a_whole_file(step: str, moment: str, tmp_path: Path) -> None:
    """Enumerated: before and after each step that touches the disk. The old content is never gone."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(BROKEN)
    done = subprocess.run([sys.executable, "-c", _KILLED, path, step, moment], check=False)
    assert done.returncode == 9, "the step was not reached"
    replaced = step == "fsync of the directory" or (step, moment) == ("replace", "after")
    assert path.read_bytes() == (repair_file(BROKEN).output if replaced else BROKEN)
    backup = path.with_name("session.jsonl.bak")
    assert not replaced or backup.read_bytes() == BROKEN
    assert not backup.exists() or backup.read_bytes() == BROKEN


@pytest.mark.parametrize("limit", [0, 1, len(BROKEN) - 1])
def test_a_full_disk_leaves_the_file_as_it_was(limit: int, tmp_path: Path) -> None:
    """The new content does not fit: an error, the old file, and nothing beside it."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(BROKEN)
    done = subprocess.run([sys.executable, "-c", _FULL, path, str(limit)], check=False, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr
    assert path.read_bytes() == BROKEN
    assert [one.name for one in tmp_path.iterdir()] == ["session.jsonl"]
