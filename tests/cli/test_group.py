"""The command as a whole: help, version, errors, and how quick it is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.metadata import version

import pytest
from click.testing import CliRunner
from tests.cli.terminal import call, heaveto

from heaveto.cli import group


def test_help_is_quick() -> None:
    """`heaveto --help` answers within 300 ms, at the best of five tries on a machine that does other things too."""
    took: list[float] = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run(heaveto("--help"), check=True, capture_output=True)
        took.append(time.perf_counter() - begun)
        if took[-1] < 0.3:
            return
    raise AssertionError(f"seconds: {took}")


def test_help_loads_no_command() -> None:
    """What a command needs is loaded when it is run."""
    code = (
        "import json, sys; from click.testing import CliRunner; from heaveto.cli.group import heaveto\n"
        "assert CliRunner().invoke(heaveto, ['--help']).exit_code == 0\n"
        "print(json.dumps(sorted(name for name in sys.modules)))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    heavy = {"rich", "openai", "pydantic", "sqlite3", "starlette", "heaveto.runner", "heaveto.testing"}
    assert heavy & set(loaded) == set()


@pytest.mark.parametrize("name", ["demo", "emulate", "run", "sessions", "log", "stop", "erase", "repair", "doctor"])
def test_each_command_is_listed_and_has_help(name: str) -> None:
    """The list knows every command, and each one explains itself."""
    runner = CliRunner()
    assert f"\n  {name} " in runner.invoke(group.heaveto, ["--help"]).output
    result = runner.invoke(group.heaveto, [name, "--help"])
    assert result.exit_code == 0 and "Usage:" in result.output


def test_help_shows_no_marks_of_its_makers() -> None:
    """What click needs for its layout is not shown; what this version cannot do is not promised."""
    shown = CliRunner().invoke(group.heaveto, ["--help"]).output
    assert "\\b" not in shown and "\b" not in shown and "\nExit codes: 0 ok" in shown.replace("\n  ", "\n")
    assert "paus" not in shown and "continued" not in shown


def test_it_is_run_as_a_module_too() -> None:
    """`python -m heaveto` is the command."""
    command = [sys.executable, "-W", "error", "-m", "heaveto", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("heaveto ")


def test_the_version_is_that_of_the_package() -> None:
    """`--version` names the installed version."""
    assert CliRunner().invoke(group.heaveto, ["--version"]).output == f"heaveto {version('heaveto')}\n"


def test_an_unknown_command_is_wrong_usage() -> None:
    """Wrong usage exits with 2, and says so on stderr only."""
    done = call("launch")
    assert (done.returncode, done.stdout) == (2, "") and "launch" in done.stderr


def test_without_click_it_says_what_to_install() -> None:
    """Without the extra the command names it, instead of a traceback."""
    code = "import sys; sys.modules['click'] = None; from heaveto.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "heaveto[cli]" in done.stderr and "Traceback" not in done.stderr
