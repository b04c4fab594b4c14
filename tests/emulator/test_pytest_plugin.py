"""The pytest plugin as others have it: installed, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
TESTS = """
import asyncio, json, urllib.request
from heaveto.testing import say

def ask(url):
    body = json.dumps({"model": "any", "input": "hello"}).encode()
    with urllib.request.urlopen(f"{url}/responses", body, timeout=9) as response:
        return json.loads(response.read())["output"][0]["content"][0]["text"]

async def test_passes(emulator):
    async with emulator(say("hi")) as it:
        assert await asyncio.to_thread(ask, it.openai_url) == "hi"

def test_blocks(emulator_thread):
    with emulator_thread(say("hi")) as it:
        assert ask(it.openai_url) == "hi"

async def test_leaves_a_step(emulator):
    async with emulator(say("hi"), say("left")):
        pass

async def test_leaves_a_step_and_says_so(emulator):
    async with emulator(say("left"), check=False):
        pass
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which the plugin is installed, as its entry point has it."""
    place = tmp_path / "site" / "heaveto_installed-0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: heaveto-installed\nVersion: 0\n")
    (place / "entry_points.txt").write_text("[pytest11]\nheaveto = heaveto.testing.pytest_plugin\n")
    (place / "RECORD").write_text("heaveto/__init__.py,,\nheaveto/testing/__init__.py,,\n")  # rewritten, as plugins are
    path = os.pathsep.join([str(SOURCE), str(place.parent)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def run(tests: str, where: Path, env: dict[str, str], *options: str) -> str:
    where.joinpath("test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "error"]
    command += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", *options, "test_it.py"]
    return subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, timeout=50, check=False).stdout


def test_its_fixtures_make_checked_emulators(tmp_path: Path, installed: dict[str, str]) -> None:
    """A step that nobody asked for fails the test that left it, unless the test says otherwise."""
    shown = run(TESTS, tmp_path, installed)
    assert "4 passed, 1 error" in shown, shown
    assert "ERROR test_it.py::test_leaves_a_step - AssertionError: these steps were not a" in shown


def test_it_loads_nothing_that_is_heavy(tmp_path: Path, installed: dict[str, str]) -> None:
    """A run that does not use it pays for a module of a few lines."""
    heavy = "{'uvicorn', 'openai', 'anthropic', 'msgspec', 'pydantic', 'heaveto.runner', 'heaveto.testing.emulator'}"
    test = (
        "import sys\ndef test_it():\n    assert 'heaveto.testing.pytest_plugin' in sys.modules\n"
        f"    assert not {heavy} & set(sys.modules)\n"
    )
    assert "1 passed" in run(test, tmp_path, installed)


def test_it_can_be_switched_off(tmp_path: Path, installed: dict[str, str]) -> None:
    """``-p no:heaveto`` leaves it out."""
    test = "import sys\ndef test_it():\n    assert 'heaveto' not in sys.modules\n"
    assert "1 passed" in run(test, tmp_path, installed, "-p", "no:heaveto")
