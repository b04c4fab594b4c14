"""FILE:APP, right and wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from heaveto.cli.target import load_app

SHOP = """
from heaveto import App, LlmAgent
from heaveto.testing import ScriptedModel
agent = LlmAgent("clerk", ScriptedModel("hi"))
app = App("shop", agent)
number = 7
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("shop.py:app", "shop"),
        ("shop.py:agent", "clerk"),
        ("shop.py", "shop"),
        ("shop:app", "shop"),
        ("./shop.py:app", "shop"),
    ],
)
def test_an_app_or_an_agent_is_found(place: Path, target: str, name: str) -> None:
    """A file or a module, an App or an agent, named or by its usual name."""
    (place / "shop.py").write_text(SHOP)
    assert load_app(target).name == name


def test_the_neighbours_of_a_file_are_importable(place: Path) -> None:
    """As with `python FILE`."""
    (place / "sub").mkdir()
    (place / "sub/shop.py").write_text("from prices_of_shop import name\n" + SHOP + "app = App(name, agent)\n")
    (place / "sub/prices_of_shop.py").write_text("name = 'priced'\n")
    assert load_app("sub/shop.py:app").name == "priced"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("none.py:app", "there is no file none.py"),
        ("none:app", "there is no module 'none'"),
        ("shop.py:nothing", "'nothing' is not there; there are: agent, app"),
        ("shop.py:number", "'number' is neither an App nor an agent; there are: agent, app"),
        ("empty.py", "it holds no App and no agent"),
        ("two.py", "name the app, as in two.py:NAME; there are: one, two"),
        ("no.such.module:app", "there is no module 'no.such.module'"),
    ],
)
def test_a_wrong_target_is_told_what_there_is(place: Path, target: str, words: str) -> None:
    """The message names what was looked for, and what could be meant."""
    (place / "shop.py").write_text(SHOP)
    (place / "empty.py").write_text("")
    (place / "two.py").write_text(SHOP.replace("agent", "one").replace("app =", "two ="))
    with pytest.raises(click.UsageError, match=re.escape(words)):
        load_app(target)
