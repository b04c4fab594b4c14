"""What of an answer reached the user, where that is less than was made (F62)."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto import AgentTool, LlmAgent, MemoryStore, Run, Runner
from heaveto.core.project import project
from heaveto.core.request import ModelProfile
from heaveto.errors import InputError
from heaveto.events.contents import text_of
from heaveto.events.records import CancelRequested, Message
from heaveto.testing import ScriptedModel, call, gate, hang, say, settle
from heaveto.testing.promises import check_promises

WHO: dict[str, Any] = {"user_id": "ann", "session_id": "s"}
LONG = "The train leaves at nine, and the next one at ten."
HEARD = len("The train leaves at nine")
ONLY = "Only that much of your answer above reached the user."


async def start(runner: Runner, text: str = "when?") -> Run:
    return await runner.start(**WHO, new_message=text)


def told(model: ScriptedModel, index: int = -1) -> list[tuple[str, str]]:
    return [(turn.role, text_of(turn.parts)) for turn in model.requests[index].turns]


async def marks(runner: Runner) -> list[int | None]:
    log = await runner.records(**WHO)
    check_promises(log)
    return [record.delivered for record in log if isinstance(record, CancelRequested)]


async def test_of_an_answer_that_was_cut_off_the_model_is_shown_what_was_heard() -> None:
    """The log keeps all that was made; the next request holds the delivered beginning, and says so."""
    model = ScriptedModel((say(LONG), hang()), say("fine"))
    async with Runner(LlmAgent("root", model)) as runner:
        run = await start(runner)
        await settle()
        report = await run.cancel(delivered=HEARD)
        assert report.text_kept == len(LONG)
        await (await start(runner, "what?")).wait()
        turns = told(model)
        assert [role for role, _ in turns] == ["user", "model", "user"]
        assert turns[1] == ("model", "The train leaves at nine")
        assert ONLY in turns[2][1]
        assert await marks(runner) == [HEARD]
        assert LONG in [text_of(r.parts) for r in await runner.records(**WHO) if isinstance(r, Message)]


async def test_an_answer_that_was_complete_long_before_it_was_heard() -> None:
    """Speech is slower than a model: the stop comes behind the run's ending, and what was heard counts all the same."""
    model = ScriptedModel(say(LONG), say("fine"))
    async with Runner(LlmAgent("root", model)) as runner:
        run = await start(runner)
        ended = await run.wait()
        report = await run.cancel(delivered=HEARD)
        assert report.outcome == ended.outcome == "completed"
        await (await start(runner, "what?")).wait()
        assert told(model)[1] == ("model", "The train leaves at nine")
        assert ONLY in told(model)[2][1]
        assert await marks(runner) == [HEARD]


async def test_the_first_word_counts_also_where_others_stopped_the_run() -> None:
    """A stop without a number may come first; the number is recorded once, and never changed."""
    model = ScriptedModel(say(LONG), say("fine"))
    async with Runner(LlmAgent("root", model)) as runner:
        run = await start(runner)
        await run.cancel()
        await runner.cancel(run.run_id, delivered=3)
        await run.cancel(delivered=40)
        assert await marks(runner) in ([3], [None, 3])
        await (await start(runner, "what?")).wait()


async def test_a_stop_and_then_the_number_while_the_run_ends() -> None:
    """The run was stopped by the user, and the client says later how far it had come."""
    model = ScriptedModel((say(LONG), hang()), say("fine"))
    async with Runner(LlmAgent("root", model)) as runner:
        run = await start(runner)
        await settle()
        await run.cancel()
        await run.cancel(delivered=HEARD)
        assert await marks(runner) == [None, HEARD]
        await (await start(runner, "what?")).wait()
        assert told(model)[1] == ("model", "The train leaves at nine")


@pytest.mark.parametrize("delivered", [len(LONG), len(LONG) + 100, None])
async def test_all_of_it_was_delivered(delivered: int | None) -> None:
    """Then nothing is said about it: the answer stands as it is."""
    model = ScriptedModel(say(LONG), say("fine"))
    async with Runner(LlmAgent("root", model)) as runner:
        run = await start(runner)
        await run.wait()
        await run.cancel(delivered=delivered)
        await (await start(runner, "what?")).wait()
        assert told(model) == [("user", "when?"), ("model", LONG), ("user", "what?")]


async def test_nothing_of_it_was_delivered() -> None:
    """No turn is empty: the answer stands, and the model is told that nobody heard it."""
    model = ScriptedModel(say(LONG), say("fine"))
    async with Runner(LlmAgent("root", model)) as runner:
        run = await start(runner)
        await run.wait()
        await run.cancel(delivered=0)
        await (await start(runner, "what?")).wait()
        assert told(model)[1] == ("model", LONG)
        assert "Nothing of your last answer" in told(model)[2][1]


async def test_news_that_come_when_the_next_run_has_asked_are_told_behind_it() -> None:
    """What a request held stays as it was sent, byte for byte; what was delivered is told in the request after it."""
    door = gate()
    model = ScriptedModel(say(LONG), (say("fi"), door, say("ne")), say("well"))
    async with Runner(LlmAgent("root", model)) as runner:
        first = await start(runner)
        await first.wait()
        second = await start(runner, "what?")
        await door.reached()
        await first.cancel(delivered=HEARD)
        door.open()
        await second.wait()
        await (await start(runner, "and?")).wait()
        before, after = told(model, 1), told(model, 2)
        assert before == [("user", "when?"), ("model", LONG), ("user", "what?")]
        assert after[:3] == before
        assert 'up to: "The train leaves at nine"' in after[4][1]


async def test_a_run_whose_answer_came_behind_calls() -> None:
    """The number counts the last text of the run: what was said before a call stays as it was told."""

    async def look() -> str:
        """Look."""
        return "nine"

    model = ScriptedModel((say("Let me look."), call("look")), (say(LONG), hang()), say("fine"))
    async with Runner(LlmAgent("root", model, tools=[look])) as runner:
        run = await start(runner)
        while model.calls < 2:
            await settle()
        await run.cancel(delivered=HEARD)
        await (await start(runner, "what?")).wait()
        turns = told(model)
        assert ("model", "Let me look.") in turns
        assert ("model", "The train leaves at nine") in turns
        await marks(runner)


async def test_another_agent_is_told_what_reached_the_user_of_this_ones_answer() -> None:
    """Who quotes the answer says how much of it was heard; an agent within a task hears nothing of it."""
    model = ScriptedModel(say(LONG), say("fine"))
    async with Runner(LlmAgent("root", model, tools=[AgentTool(LlmAgent("other", model))])) as runner:
        run = await start(runner)
        await run.wait()
        await run.cancel(delivered=HEARD)
        log = await runner.records(**WHO)
    quoted = [text_of(turn.parts) for turn in project(log, "other", ModelProfile(name="scripted"))]
    assert LONG in quoted[-1]
    assert "Of root's last answer only the beginning reached the user" in quoted[-1]
    assert "reached" not in str(list(project(log, "other", ModelProfile(name="scripted"), branch="@c1")))


async def test_taking_a_session_back_does_not_make_an_answer_heard() -> None:
    """The number comes behind the run's ending, and a session is taken back to before it: it counts all the same."""
    model = ScriptedModel(say(LONG), say("second"), say("fine"), say("well"))
    async with Runner(LlmAgent("root", model)) as runner:
        first = await start(runner)
        ended = await first.wait()
        second = await start(runner, "what?")
        await second.wait()
        await first.cancel(delivered=HEARD)
        await second.cancel(delivered=1)
        await runner.rewind(**WHO, before_run=second.run_id)
        for text in ("and?", "again?"):
            await (await start(runner, text)).wait()
            assert told(model)[:2] == [("user", "when?"), ("model", "The train leaves at nine")]
            assert ONLY in told(model)[2][1]
            assert "second" not in str(told(model))
            await runner.rewind(**WHO, to=ended.seq)


async def test_taking_back_the_run_takes_what_was_delivered_of_it() -> None:
    """Nobody is told of an answer that counts no more, also if the number comes later."""
    model = ScriptedModel(say("first"), say(LONG), say("fine"))
    async with Runner(LlmAgent("root", model)) as runner:
        await (await start(runner)).wait()
        second = await start(runner, "what?")
        await second.wait()
        await second.cancel(delivered=HEARD)
        await runner.rewind(**WHO, before_run=second.run_id)
        await second.cancel(delivered=HEARD)
        await (await start(runner, "and?")).wait()
        assert told(model) == [("user", "when?"), ("model", "first"), ("user", "and?")]


@pytest.mark.parametrize("delivered", [-1, 1.5, "The", True, 2**63, 10**30])
async def test_nonsense_is_refused(delivered: Any) -> None:
    """The error says what was given, and nothing is stopped for it."""
    model = ScriptedModel((say(LONG), hang()))
    async with Runner(LlmAgent("root", model), store=MemoryStore()) as runner:
        run = await start(runner)
        with pytest.raises(InputError, match="delivered must be how many characters"):
            await run.cancel(delivered=delivered)
        assert run.status == "running"
