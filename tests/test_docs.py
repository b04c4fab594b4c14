"""The pages of the documentation: their Python blocks run, twice, and can be typed; their links lead somewhere."""

from __future__ import annotations

import ast
import codeop
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


def typing_problem(block: str) -> str:
    """Return what a ``python -m asyncio`` prompt refuses of a block that is pasted into it; empty if nothing."""
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    pending: list[str] = []
    for number, line in enumerate([*block.splitlines(), ""], start=1):
        pending.append(line)
        try:
            if compiler("\n".join(pending), symbol="single") is not None:
                pending = []
        except SyntaxError as error:
            return f"line {number}: {error.msg}: {line}"
    return "it does not end" if any(pending) else ""


def bare_environment() -> dict[str, str]:
    """The environment without keys: a page must not need one, and must not spend anyone's money."""
    return {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}


@pytest.mark.parametrize("page", PROGRAMS, ids=name)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """What a page shows works as it stands, in a fresh process, without a key; and once more, over what that left."""
    command = [sys.executable, "-W", "error", str(ROOT / "tests/run_page.py"), str(page)]
    for time in ("first", "second"):
        done = subprocess.run(
            command, cwd=tmp_path, env=bare_environment(), capture_output=True, text=True, timeout=28, check=False
        )
        assert done.returncode == 0, f"the {time} time: {done.stderr}"


def test_no_two_pages_share_a_file() -> None:
    """Who does one page after another in the same directory does not stumble over the one before."""
    users: dict[str, set[str]] = {}
    for page in PAGES:
        for _, block in python_blocks(page.read_text(encoding="utf-8")):
            for file in re.findall(r"SqliteStore\(\W*([\w-]+\.db)", block):
                users.setdefault(file, set()).add(name(page))
    assert users and {file: pages for file, pages in users.items() if len(pages) > 1} == {}


@pytest.mark.parametrize("page", [page for page in PROGRAMS if page.name != "README.md"], ids=name)
def test_the_python_blocks_of_a_page_can_be_typed(page: Path) -> None:
    """Each block can be fed line by line to ``python -m asyncio``, where a blank line ends a compound statement."""
    blocks = python_blocks(page.read_text(encoding="utf-8"))
    problems = [(line, typing_problem(block)) for line, block in blocks]
    assert [(line, problem) for line, problem in problems if problem] == []


def test_what_cannot_be_typed_is_noticed() -> None:
    """A statement right behind a loop, and a blank line within a function, are what a prompt refuses."""
    assert typing_problem("for x in y:\n    pass\nz = 1\n").startswith("line 3")
    assert typing_problem("def f():\n    pass\n\n    return 1\n").startswith("line 4")
    assert typing_problem("x = (\n").startswith(("line", "it does not end"))
    assert typing_problem("await f()\nfor x in y:\n    pass\n\nz = 1\n") == ""


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
