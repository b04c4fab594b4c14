"""What importing the package loads, and what it offers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import heaveto

HEAVY = {
    "anthropic",
    "click",
    "google",
    "httpx",
    "mcp",
    "openai",
    "pydantic",
    "rich",
    "sqlite3",
    "starlette",
    "uvicorn",
}
NAMES = Path(__file__).with_name("public_names.txt")


def test_the_import_loads_nothing_heavy() -> None:
    """SDKs, pydantic and the database come in with their first use, so that `import heaveto` stays quick."""
    code = "import json, sys, heaveto; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(json.loads(done.stdout)) == set()


def test_the_public_names_are_those_that_are_listed() -> None:
    """A name is added or removed on purpose: change `tests/public_names.txt` together with `heaveto.__all__`."""
    assert sorted(getattr(heaveto, "__all__", [])) == NAMES.read_text(encoding="utf-8").split()


def test_every_public_name_is_there() -> None:
    """What `__all__` promises can be got, lazily or not."""
    assert [name for name in getattr(heaveto, "__all__", []) if not hasattr(heaveto, name)] == []


def test_the_package_says_that_it_is_typed() -> None:
    """Type checkers of users look for this file."""
    assert (Path(heaveto.__file__).parent / "py.typed").exists()
