"""The pages of the documentation: their Python blocks run, their links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.run_page import python_blocks

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
PROGRAMS = [page for page in PAGES if any(python_blocks(page.read_text(encoding="utf-8")))]
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def bare_environment() -> dict[str, str]:
    """The environment without keys: a page must not need one, and must not spend anyone's money."""
    return {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}


@pytest.mark.parametrize("page", PROGRAMS, ids=name)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """What a page shows works as it stands, in a fresh process and an empty directory, without a key."""
    command = [sys.executable, "-W", "error", str(ROOT / "tests/run_page.py"), str(page)]
    done = subprocess.run(
        command, cwd=tmp_path, env=bare_environment(), capture_output=True, text=True, timeout=55, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    """A link to a file of the repository names one that is there."""
    links: list[str] = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_blocks_keep_their_line_and_lose_their_indent() -> None:
    """Blocks in lists are run too, and errors point at the page's lines; other languages are left alone."""
    page = "a\n```python\nx = 1\n```\n- b\n  ```python\n  if x:\n      y = 2\n  ```\n```console\n$ no\n```\n"
    assert list(python_blocks(page)) == [(2, "x = 1\n"), (6, "if x:\n    y = 2\n")]


def test_a_page_may_await_at_top_level(tmp_path: Path) -> None:
    """Blocks share names and one event loop."""
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport asyncio\nloop = asyncio.get_running_loop()\nawait asyncio.sleep(0)\n```\n"
        "```python\nassert asyncio.get_running_loop() is loop\nawait asyncio.sleep(0)\n```\n"
        "```python\nassert loop\n```\n"
    )
    script = str(ROOT / "tests/run_page.py")
    done = subprocess.run([sys.executable, script, str(page)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
