"""The runner without an event loop: iterate, leave, Ctrl-C."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.runner.desk import SESSION, USER, kinds

from heaveto import LlmAgent, RunConfig, RunFailedError, Runner, SqliteStore
from heaveto.errors import ConfigError
from heaveto.events.records import Record, RunEnded
from heaveto.testing import ScriptedModel, fault, hang, say

QUICK = RunConfig(cancel_grace_seconds=0.02)


def make(tmp_path: Path, *steps: object) -> tuple[Runner, ScriptedModel]:
    model = ScriptedModel(*steps)  # type: ignore[arg-type]
    return Runner(LlmAgent("root", model), app_name="desk", store=SqliteStore(tmp_path / "heaveto.db")), model


def stored(tmp_path: Path) -> list[Record]:
    """The log as the next process reads it."""
    import asyncio

    async def read() -> list[Record]:
        async with Runner(LlmAgent("root", ScriptedModel()), app_name="desk",
                          store=SqliteStore(tmp_path / "heaveto.db")) as runner:  # fmt: skip
            return await runner.records(user_id=USER, session_id=SESSION)

    return asyncio.run(read())


def test_a_script_runs_to_the_end(tmp_path: Path) -> None:
    """`run` yields what `run_async` yields, one run after another."""
    runner, _ = make(tmp_path, say("one"), say("two"))
    for _ in range(2):
        items = list(runner.run(user_id=USER, session_id=SESSION, new_message="go"))
        assert kinds(items)[0] == "RunStarted"
        assert isinstance(items[-1], RunEnded)
    runner.close()
    runner.close()
    assert kinds(stored(tmp_path)).count("RunEnded") == 2


@pytest.mark.parametrize("way", ["break", "close", "collect", "exception"])
def test_leaving_the_loop_stops_the_run(tmp_path: Path, way: str) -> None:
    """break, close, garbage collection or an error in the loop's body: the run is stopped, its ending durable (F58)."""
    runner, model = make(tmp_path, (say("Hel"), hang()))
    iterator = runner.run(user_id=USER, session_id=SESSION, new_message="go", run_config=QUICK)
    if way == "break":
        for _ in iterator:
            break
        del iterator
    elif way == "close":
        next(iterator)
        iterator.close()  # type: ignore[attr-defined]
    elif way == "collect":
        next(iterator)
        del iterator
    else:
        with pytest.raises(ZeroDivisionError):
            for _ in runner.run(user_id=USER, session_id=SESSION, new_message="x", run_config=QUICK):
                raise ZeroDivisionError
        next(iterator, None)
        del iterator
    gc.collect()
    assert model.active == 0
    runner.close()
    ended = next(record for record in stored(tmp_path) if isinstance(record, RunEnded))
    assert (ended.outcome, ended.cause) == ("cancelled", "disconnect")


def test_an_iterator_that_is_never_begun_does_nothing(tmp_path: Path) -> None:
    """The blocking stream is cold too."""
    runner, model = make(tmp_path, say("never"))
    del_me = runner.run(user_id=USER, session_id=SESSION, new_message="go")
    del del_me
    gc.collect()
    runner.close()
    assert model.calls == 0


def test_a_failed_run_raises_behind_its_records(tmp_path: Path) -> None:
    """The records come first, then the typed error."""
    runner, _ = make(tmp_path, fault("no", status=400))
    items: list[object] = []
    with pytest.raises(RunFailedError):
        for item in runner.run(user_id=USER, session_id=SESSION, new_message="go"):
            items.append(item)
    assert isinstance(items[-1], RunEnded)
    runner.close()


async def test_it_refuses_to_block_an_event_loop(tmp_path: Path) -> None:
    """Called where a loop runs it is a typed error that names run_async."""
    runner, _ = make(tmp_path, say("x"))
    with pytest.raises(ConfigError, match="run_async"):
        runner.run(user_id=USER, session_id=SESSION, new_message="go")


SCRIPT = """
    import sys
    from heaveto import LlmAgent, RunConfig, Runner, SqliteStore
    from heaveto.testing import ScriptedModel, hang, say

    runner = Runner(
        LlmAgent("root", ScriptedModel((say("Hel"), hang()))), app_name="desk", store=SqliteStore(sys.argv[1])
    )
    for item in runner.run(user_id="ann", session_id="s", new_message="go"):
        if type(item).__name__ == "Delta":
            print("streaming", flush=True)
"""


def test_ctrl_c_stops_the_run_before_the_script_ends(tmp_path: Path) -> None:
    """SIGINT in a blocking loop: the half answer and the ending are durable when the process is gone (F58, P3)."""
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "heaveto.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "streaming\n"
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    assert "never retrieved" not in errors
    records = stored(tmp_path)
    assert isinstance(records[-1], RunEnded)
    assert (records[-1].outcome, records[-1].cause) == ("cancelled", "disconnect")
    assert "Message" in kinds(records)
