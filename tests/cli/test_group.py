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


@pytest.mark.parametrize("name", ["demo", "run", "sessions", "log", "doctor"])
def test_each_command_is_listed_and_has_help(name: str) -> None:
    """The list knows every command, and each one explains itself."""
    runner = CliRunner()
    assert f"\n  {name} " in runner.invoke(group.heaveto, ["--help"]).output
    result = runner.invoke(group.heaveto, [name, "--help"])
    assert result.exit_code == 0 and "Usage:" in result.output


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
