"""`heaveto demo`, whole; and that it does not praise itself.

End to end it holds F51 (a stop closes the provider's socket) and F134 (a stop is no error), and, over real HTTP and a
real kill -9: the next request is valid and truthful, seen text survives, effects are not doubled, runs are in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.terminal import Terminal, call

from heaveto.cli.demo import command, scenes
from heaveto.cli.demo.providers import PROVIDERS
from heaveto.cli.demo.show import DemoError, Show
from heaveto.cli.demo.stage import Check, Stage, Tally
from heaveto.cli.demo.told import calls, last_results, late_notes, notes, results, said_before, user_text
from heaveto.cli.group import heaveto
from heaveto.core.request import ModelRequest, Turn
from heaveto.events.contents import FunctionCall, FunctionResponse, Text
from heaveto.models.wire import anthropic, gemini, openai_chat, openai_responses


def test_the_demo_keeps_every_promise(tmp_path: Path) -> None:
    """Offline, without a key, in a pipe: all scenes, every check kept, exit code 0; and the doctor is content."""
    done = call("demo", "--fast", "--dir", tmp_path / "demo")
    check_is_kept(done)
    assert [int(number) for number in re.findall(r"^-- (\d)\. ", done.stdout, re.MULTILINE)] == list(range(1, 10))
    for promise in ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8"):
        assert f"  kept    {promise}" in done.stdout
    assert call("doctor", tmp_path / "demo/demo.db").returncode == 0
    again = call("demo", "--dir", tmp_path / "demo")
    assert again.returncode == 2 and "choose another directory" in again.stderr.replace("\n", " ")


@pytest.mark.parametrize("provider", sorted(PROVIDERS.keys() - {"openai-chat"}))
def test_the_demo_keeps_every_promise_over_each_api(provider: str) -> None:
    """The same scenes and checks, through each provider's own SDK (P1)."""
    done = call("demo", "--fast", "--provider", provider)
    check_is_kept(done)
    assert f"requests over HTTP ({PROVIDERS[provider].title})" in done.stdout


def check_is_kept(done: CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "" and "\x1b" not in done.stdout
    assert "BROKEN" not in done.stdout and "all 39 checks passed" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_demo_in_a_terminal(tmp_path: Path) -> None:
    """In a terminal, at reading speed, in colour."""
    with Terminal("demo", cwd=tmp_path) as terminal:
        for text in ("kill -9", "The late result", "The accounts", "checks passed", "over HTTP"):
            terminal.wait_for(text)
        assert terminal.end() == 0
        assert "\x1b[" in terminal.shown and "✗" not in terminal.shown


async def pays_twice(show: Show) -> None:
    show.service.pay(8, "k")
    show.service.pay(8, "k")
    show.check("P5", "payments for order 8", show.service.payments(8) == 1)


async def waits_in_vain(show: Show) -> None:
    raise DemoError("waited in vain for the tide")


@pytest.mark.parametrize(("scene", "words"), [(pays_twice, "payments for order 8"), (waits_in_vain, "the tide")])
def test_a_broken_promise_fails_the_demo(monkeypatch: pytest.MonkeyPatch, scene: scenes.Scene, words: str) -> None:
    """What does not hold is called broken, the other scenes go on, and the exit code is 1."""
    played = (("A", "a", scene), ("B", "b", scenes.plain_turn))
    monkeypatch.setattr(command, "SCENES", played)
    result = CliRunner().invoke(heaveto, ["demo", "--fast"])
    assert result.exit_code == 1
    assert words in result.stdout and "BROKEN" in result.stdout and "1 of 4 checks failed" in result.stdout


TURNS = (
    Turn("user", (Text(text="Go."),)),
    Turn("model", (Text(text="I pay."), FunctionCall(call_id="c1", name="pay"))),
    Turn("tool", (FunctionResponse(call_id="c1", name="pay", response={"status": "unknown", "error": "Check."}),)),
    Turn("user", (Text(text="[Stopped.]"), Text(text="And now?"))),
)
ENCODERS = (openai_chat.encode, openai_responses.encode, anthropic.encode, gemini.encode)


@pytest.mark.parametrize("encode", ENCODERS, ids=["chat", "responses", "anthropic", "gemini"])
def test_what_the_model_is_told_is_read_from_the_wire(encode: Callable[[ModelRequest], dict[str, Any]]) -> None:
    """Results with their status, the runtime's notes, and the user's own words, whichever API they went to."""
    body = encode(ModelRequest(turns=TURNS))
    (result,) = results(body)
    assert (result.call_id, result.name, result.status, result.explanation) == ("c1", "pay", "unknown", "Check.")
    assert (notes(body), late_notes(body), user_text(body)) == (["[Stopped.]"], [], "And now?")
    assert (calls(body), said_before(body), last_results(body)) == (["c1"], ["I pay."], [])
    returned = encode(ModelRequest(turns=TURNS[:3]))
    assert (last_results(returned), user_text(returned)) == ([result], "Go.")


@pytest.fixture
def page() -> list[str]:
    """What a stage of forty columns wrote."""
    return []


def lines(page: list[str]) -> list[str]:
    return "".join(page).splitlines()


def test_streamed_text_is_wrapped_as_it_comes(page: list[str]) -> None:
    """Word by word, within the width, in one paragraph; what follows begins on a new line."""
    stage = Stage(page.append, 40)
    for piece in ("One two three", " four five", " six seven eight"):
        stage.stream(piece)
    stage.line("user", "next")
    assert lines(page) == [
        "   agent   One two three four five six",
        "           seven eight",
        "    user   next",
    ]


@pytest.mark.parametrize(
    "act",
    [
        lambda stage: stage.scene(1, "Title", "word " * 30),
        lambda stage: stage.line("user", "word " * 30),
        lambda stage: stage.check(Check("P1", "word " * 30, kept=True)),
        lambda stage: stage.stream("word " * 30),
    ],
    ids=["scene", "line", "check", "stream"],
)
def test_no_line_is_wider_than_the_stage(page: list[str], act: Callable[[Stage], None]) -> None:
    """Readable in a pipe and in a narrow window."""
    act(Stage(page.append, 40))
    assert max(map(len, lines(page))) <= 40


def test_the_summary_names_what_was_broken(page: list[str]) -> None:
    """Each promise with its count."""
    stage = Stage(page.append, 60)
    stage.summary([Tally("P1", "Valid", 2, 2), Tally("P5", "Not doubled", 1, 2)], "1 of 4", kept=False)
    assert lines(page)[-4:] == ["  kept    P1   2 of 2   Valid", "  BROKEN  P5   1 of 2   Not doubled", "", "1 of 4"]
