"""The peers' own virtual environment: made when missing, made anew when its requirements changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE / ".peers-venv"
REQUIREMENTS = HERE / "peers" / "requirements.txt"
_INSTALLED = ENVIRONMENT / "installed-requirements.txt"


def peers_python() -> Path:
    """Return the interpreter of the peers' environment, whether it is there or not."""
    folder, name = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")
    return ENVIRONMENT / folder / name


def is_current() -> bool:
    """Whether the environment holds what the requirements ask for now."""
    return _INSTALLED.exists() and _INSTALLED.read_text() == REQUIREMENTS.read_text()


def ensure_peers() -> Path:
    """Install the peers if need be (about half a minute, 270 MB) and return their interpreter."""
    if not is_current():
        print("installing the peers into", ENVIRONMENT, file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        pip = [
            str(peers_python()),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
        _INSTALLED.write_text(REQUIREMENTS.read_text())
    return peers_python()
