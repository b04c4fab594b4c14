"""Calls whose results come from outside: input of people, tools of the caller, work that goes on elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Held, kinds
from tests.runner.waiting import (
    Counted,
    MakeDesk,
    Medium,
    Shelf,
    answer,
    attempts,
    of,
    paused,
    question,
    reply,
    response,
    statuses,
)  # fmt: skip

from heaveto import (
    CallSettled,
    CallStarted,
    ClientTool,
    FunctionTool,
    LongRunningFunctionTool,
    Message,
    Paused,
    RequestInputTool,
    RunEnded,
)  # fmt: skip
from heaveto.errors import AnswerInvalidError, AnswerKindError
from heaveto.events.records import RunStarted
from heaveto.stores.base import Store
from heaveto.testing import ScriptedModel, call, say

AGE = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}
OPEN_TAB = ClientTool(
    "open_tab",
    "Open a page in the user's browser.",
    {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"], "additionalProperties": False},
    result_schema={"type": "object", "required": ["title"]},
)


async def test_a_model_asks_people_and_gets_their_answer(desk: MakeDesk, store: Store) -> None:
    """The question is what the model asked, the value is the call's result, and no tool is started for it."""
    at = desk(call("request_input", question="How old?"), say("42."), store=store, tools=[RequestInputTool(schema=AGE)])
    run = await paused(at)
    asked = await question(at)
    assert (asked.kind, asked.hint, asked.schema) == ("input", "How old?", AGE)
    await at.runner.answer(run.run_id, asked.call_id, {"age": 42})
    assert await run.result() == "42."
    assert (await at.settled())["request_input"].response == {"age": 42}
    assert of(await at.log(), CallStarted) == []


async def test_input_that_does_not_fit_its_schema_is_refused(desk: MakeDesk) -> None:
    """Nothing is written, and the question stays open."""
    at = desk(call("request_input", question="How old?"), say("ok"), tools=[RequestInputTool(schema=AGE)])
    await paused(at)
    before = await at.log()
    with pytest.raises(AnswerInvalidError, match=r"\$\.age"):
        await answer(at, "request_input", {"age": "old"})
    with pytest.raises(AnswerInvalidError):
        await reply(at, response((await question(at)).call_id, age=-1))
    assert await at.log() == before


async def test_input_without_a_schema_is_a_text(desk: MakeDesk) -> None:
    """What is answered as ``{"result": …}`` in a message is that value alone."""
    at = desk(call("request_input", question="Name?"), say("ok"), tools=[RequestInputTool()])
    await paused(at)
    await reply(at, response((await question(at)).call_id, result="Ann"))
    assert (await at.settled())["request_input"].response == {"result": "Ann"}


async def test_people_may_refuse_to_say(desk: MakeDesk) -> None:
    """A no is told to the model as such."""
    at = desk(call("request_input", question="How old?"), say("Never mind."), tools=[RequestInputTool()])
    run = await paused(at)
    await answer(at, "request_input", "none of your business", accept=False)
    await run.wait()
    assert statuses(await at.log()) == [("request_input", "denied", None)]
    assert "none of your business" in at.told()


async def test_a_yes_is_no_value(desk: MakeDesk) -> None:
    """A decision that does not answer this kind of question is refused, not guessed at."""
    at = desk(call("request_input", question="How old?"), tools=[RequestInputTool()])
    run = await paused(at)
    with pytest.raises(AnswerKindError):
        await at.runner.answer(run.run_id, (await question(at)).call_id, args={"question": "edited"})


async def test_a_client_executes_its_own_tools(desk: MakeDesk, store: Store) -> None:
    """The caller finds arguments and schema with the question, and its result is the call's."""
    at = desk(call("open_tab", url="https://a.example"), say("It is A."), store=store, tools=[OPEN_TAB])
    run = await paused(at)
    asked = await question(at)
    assert (asked.kind, asked.args) == ("client", {"url": "https://a.example"})
    with pytest.raises(AnswerInvalidError):
        await reply(at, response(asked.call_id, code=404))
    await reply(at, response(asked.call_id, title="A"))
    assert await run.result() == "It is A."
    assert (await at.settled())["open_tab"].response == {"title": "A"}


async def test_a_client_is_not_asked_with_arguments_that_do_not_fit(desk: MakeDesk) -> None:
    """They are checked here, and the model corrects them."""
    at = desk(call("open_tab", uri="a"), call("open_tab", url="a"), tools=[OPEN_TAB])
    await paused(at)
    assert statuses(await at.log()) == [("open_tab", "failed", None)]


async def test_a_client_result_that_says_confirmed_is_a_result(desk: MakeDesk) -> None:
    """Only confirmations are answered by ``confirmed``; and the same answer again is still the same (F88)."""
    tool = ClientTool("ask_user", "Ask.", {"type": "object"})
    at = desk(call("ask_user"), say("ok"), tools=[tool])
    await paused(at)
    told = response((await question(at)).call_id, confirmed=True)
    await reply(at, told)
    assert (await at.settled())["ask_user"].response == {"confirmed": True}
    assert await reply(at, told) == []


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
async def test_work_elsewhere_that_says_nothing_yet_pauses_the_run(
    desk: MakeDesk, medium: Medium, tmp_path: Path
) -> None:
    """The function begins it once; the outcome is answered later, also after a restart, and is the call's result."""
    shelf, begun = Shelf(medium, tmp_path), Counted(None)
    first = desk(call("build", order=3), store=shelf.store(), tools=[LongRunningFunctionTool(begun, name="build")])
    await paused(first)
    assert (await question(first)).kind == "long_running"
    await first.runner.aclose()
    second = desk(say("Built."), store=shelf.store(), tools=[LongRunningFunctionTool(begun, name="build")])
    log = await reply(second, response((await question(second)).call_id, artifact="app.tar"))
    assert of(log, Message)[-1].parts[0].text == "Built."
    assert (await second.settled())["build"].response == {"artifact": "app.tar"}
    assert begun.executed == [{"order": 3}]


async def test_work_elsewhere_that_failed(desk: MakeDesk) -> None:
    """A no to long-running work says that it will not come."""
    at = desk(call("build"), say("It failed."), tools=[LongRunningFunctionTool(Counted(None), name="build")])
    run = await paused(at)
    await answer(at, "build", "disk full", accept=False)
    await run.wait()
    assert statuses(await at.log()) == [("build", "cancelled", None)]
    assert "disk full" in at.told()
    assert "given up by those who did it" in at.told()  # the run did not end


def ticket(result: Any = None) -> LongRunningFunctionTool:
    return LongRunningFunctionTool(Counted(result or {"ticket": 17}), name="build")


async def test_work_elsewhere_that_answers_at_once_goes_on_behind_the_run(desk: MakeDesk, store: Store) -> None:
    """The model is told the first word, the run ends, and the outcome begins a run of its own."""
    at = desk(call("build"), say("Ticket 17."), say("It is built."), store=store, tools=[ticket()])
    run = await at.start()
    assert await run.result() == "Ticket 17."
    assert "'ticket': 17" in at.told()
    asked = await question(at)
    await at.runner.answer(run.run_id, asked.call_id, {"artifact": "app.tar"})
    log = await at.until(lambda log: len(of(log, RunEnded)) == 2)
    assert [record.trigger for record in of(log, RunStarted)] == ["message", "background"]
    assert [(one.status, one.late) for one in of(log, CallSettled)] == [("detached", False), ("succeeded", True)]
    assert "app.tar" in at.told()


async def test_the_outcome_of_work_elsewhere_is_news_while_its_run_goes_on(desk: MakeDesk) -> None:
    """Then no other run begins: the agent hears of it before it is done."""
    held = Held()
    at = desk(call("build"), call("held"), say("Built."), tools=[ticket(), held.tool()])
    run = await at.start()
    await held.began.wait()
    await at.runner.answer(run.run_id, (await question(at)).call_id, {"artifact": "app.tar"})
    held.may_end.set()
    assert await run.result() == "Built."
    assert "app.tar" in at.told()
    assert len(of(await at.log(), RunStarted)) == 1


async def test_an_outcome_that_was_given_before_is_harmless(desk: MakeDesk) -> None:
    """The same outcome again starts no second run (F88)."""
    at = desk(call("build"), say("Ticket."), say("Built."), tools=[ticket()])
    run = await at.start()
    await run.wait()
    asked = await question(at)
    for _ in range(3):
        await at.runner.answer(run.run_id, asked.call_id, {"artifact": "app.tar"})
    log = await at.until(lambda log: len(of(log, RunEnded)) == 2)
    assert kinds(log).count("Answered") == 1
    assert len(of(log, RunStarted)) == 2


async def test_work_elsewhere_by_message(desk: MakeDesk) -> None:
    """A function response brings the outcome home as `answer` does; the run that it is for has ended."""
    at = desk(call("build"), say("Ticket."), say("Built."), tools=[ticket()])
    await at.ask()
    await reply(at, response((await question(at)).call_id, artifact="app.tar"))
    log = await at.until(lambda log: len(of(log, RunEnded)) == 2)
    assert of(log, CallSettled)[-1].response == {"artifact": "app.tar"}


@pytest.mark.parametrize("medium", ["memory", "sqlite"])
async def test_work_elsewhere_is_not_lost_with_the_process(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """Nobody here works for it, so a restart does not make it unknown: its outcome is still waited for."""
    shelf = Shelf(medium, tmp_path)
    first = desk(call("build"), say("Ticket."), store=shelf.store(), tools=[ticket()])
    await first.ask()
    await first.runner.aclose()
    second = desk(say("Hello."), say("Built."), store=shelf.store(), tools=[ticket()])
    await second.ask("hello")
    asked = await question(second)
    await second.runner.answer(asked.run_id, asked.call_id, {"artifact": "app.tar"})
    log = await second.until(lambda log: len(of(log, RunEnded)) == 3)
    assert [one.status for one in of(log, CallSettled)] == ["detached", "succeeded"]


async def test_long_running_and_gated(desk: MakeDesk) -> None:
    """First the yes, then the work begins, then its outcome: two questions of one call, one after the other (F93)."""
    begun = Counted(None)
    tool = FunctionTool(begun, name="build", long_running=True, require_confirmation=True)
    at = desk(call("build", order=1), say("Built."), tools=[tool])
    run = await paused(at)
    assert (await question(at)).kind == "confirmation"
    assert begun.executed == []
    await answer(at, "build")
    await at.until(lambda log: len([one for one in of(log, Paused) if not one.held]) == 2)
    assert (await question(at)).kind == "long_running"
    await answer(at, "build", {"artifact": "app.tar"})
    assert await run.result() == "Built."
    assert begun.executed == [{"order": 1}]
    assert attempts(await at.log()) == [(1, "message"), (2, "answer"), (3, "answer")]


async def test_the_call_ids_of_a_streamed_question_stand_from_first_sight(desk: MakeDesk) -> None:
    """What is streamed and what is recorded have one id, under which the call is answered (F93)."""
    at = desk(call("open_tab", url="a"), say("ok"), model=None, tools=[OPEN_TAB])
    assert isinstance(at.model, ScriptedModel)
    await paused(at)
    (message,) = of(await at.log(), Message)
    assert message.parts[0].call_id == (await question(at)).call_id
