"""Calls that need a yes: the runtime asks for it, keeps it, and executes nothing without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import Desk
from tests.runner.waiting import (
    GOES_ON,
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

from heaveto import Answered, CallStarted, FunctionTool, Hold, Paused, Tool, ToolContext
from heaveto.core.request import ToolDeclaration
from heaveto.errors import AnswerInvalidError, AnswerKindError, InputError
from heaveto.events.contents import FunctionResponse
from heaveto.stores.base import Store
from heaveto.testing import call, say

BOTH: list[Medium] = ["memory", "sqlite"]


def gated(func: Any, name: str = "pay", **options: Any) -> FunctionTool:
    needs = options.pop("require_confirmation", True)
    return FunctionTool(func, name=name, require_confirmation=needs, **options)


async def test_a_gated_call_is_not_begun_before_its_yes(desk: MakeDesk, store: Store) -> None:
    """The run pauses without a start, and with the yes the call is executed once, in another attempt of the run."""
    pay = Counted("paid")
    at = desk(call("pay", order=7), say("Paid."), store=store, tools=[gated(pay, confirmation_hint="Really?")])
    run = await paused(at)
    asked = await question(at)
    assert (asked.kind, asked.hint, asked.args, asked.path) == ("confirmation", "Really?", {"order": 7}, "root")
    assert of(await at.log(), CallStarted) == pay.executed == []
    await at.runner.answer(run.run_id, asked.call_id, by="bob")
    assert await run.result() == "Paid."
    assert pay.executed == [{"order": 7}]
    assert attempts(await at.log()) == [(1, "message"), (2, "answer")]
    assert (await at.settled())["pay"].response == {"result": "paid"}


async def test_who_answered_and_when_is_in_the_log(desk: MakeDesk) -> None:
    """The decision is a record of its own, with its author and its time."""
    at = desk(call("pay"), say("ok"), tools=[gated(Counted())])
    run = await paused(at)
    given = await answer(at, "pay", by="bob")
    await run.wait()
    (recorded,) = of(await at.log(), Answered)
    assert recorded == given
    assert (recorded.by, recorded.decision, recorded.time > 0) == ("bob", "approve", True)


async def test_an_answer_by_message_is_its_users(desk: MakeDesk) -> None:
    """Whose session it is gave the answer that came as a message to it."""
    at = desk(call("pay"), say("ok"), tools=[gated(Counted())])
    await paused(at)
    await reply(at, response((await question(at)).call_id, confirmed=True))
    assert [answered.by for answered in of(await at.log(), Answered)] == ["ann"]


async def test_a_denied_call_is_never_executed(desk: MakeDesk, store: Store) -> None:
    """A no is enforced by the runtime, whatever the tool is, and its reason is told to the model (F95)."""

    class Careless(Tool):
        name, description = "drop", "Drop a table."

        def __init__(self) -> None:
            self.executed = 0

        def declaration(self) -> ToolDeclaration:
            return ToolDeclaration(self.name, self.description, {"type": "object", "properties": {}})

        def bind(self, args: dict[str, Any]) -> dict[str, Any]:
            return args

        async def hold(self, args: dict[str, Any], ctx: ToolContext) -> Hold:
            return Hold("confirmation", "Drop it?")

        async def run(self, args: dict[str, Any], ctx: ToolContext) -> None:
            self.executed += 1

    tool = Careless()
    at = desk(call("drop"), say("Not dropped."), store=store, tools=[tool])
    run = await paused(at)
    await answer(at, "drop", "we need it", accept=False)
    assert await run.result() == "Not dropped."
    assert tool.executed == 0
    assert statuses(await at.log()) == [("drop", "denied", None)]
    assert "we need it" in at.told() and "It was not executed" in at.told()


async def test_edited_arguments_are_executed_recorded_and_told(desk: MakeDesk, store: Store) -> None:
    """Proposed, decided and effective arguments are three records; the model is told which were used (F98, F142)."""
    pay = Counted("paid")
    at = desk(call("pay", order=7), say("Paid 8."), store=store, tools=[gated(pay)])
    run = await paused(at)
    await answer(at, "pay", args={"order": 8})
    await run.wait()
    assert pay.executed == [{"order": 8}]
    log = await at.log()
    (pause, *_) = of(log, Paused)
    assert pause.waiting[0].args == {"order": 7}
    assert of(log, Answered)[0].args == {"order": 8}
    assert of(log, CallStarted)[0].args == {"order": 8}
    assert "'executed_with_arguments': {'order': 8}" in at.told()


async def test_edited_arguments_are_validated_before_they_count(desk: MakeDesk) -> None:
    """What does not fit the tool's schema is refused where it is given, and the call waits on (F98)."""
    pay = Counted()
    at = desk(call("pay", order=7), say("ok"), tools=[gated(pay)])
    run = await paused(at)
    asked = await question(at)
    with pytest.raises(AnswerInvalidError, match="order"):
        await at.runner.answer(run.run_id, asked.call_id, args={"order": "many"})
    with pytest.raises(AnswerInvalidError, match="order"):
        await reply(at, response(asked.call_id, confirmed=True, args={"order": "many"}))
    assert of(await at.log(), Answered) == []
    await reply(at, response(asked.call_id, confirmed=True, args={"order": 9}))
    assert pay.executed == [{"order": 9}]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_predicate_decides_which_calls_need_a_yes(desk: MakeDesk, is_async: bool) -> None:
    """It gets the arguments and the context, and small sums pass without a question."""
    pay = Counted()

    def is_large(order: int, ctx: ToolContext) -> bool:
        assert ctx.call_id
        return order > 100

    async def is_large_too(order: int, ctx: ToolContext) -> bool:
        return is_large(order, ctx)

    async def pay_order(order: int, ctx: ToolContext) -> str:
        """Pay."""
        return str(await pay(order))

    needs: Callable[..., Any] = is_large_too if is_async else is_large
    at = desk(
        call("pay", order=5), call("pay", order=500), say("ok"), tools=[gated(pay_order, require_confirmation=needs)]
    )
    run = await paused(at)
    assert pay.executed == [{"order": 5}]
    await answer(at, "pay")
    await run.wait()
    assert pay.executed == [{"order": 5}, {"order": 500}]


async def test_the_predicate_is_not_asked_again_after_the_decision(desk: MakeDesk) -> None:
    """The stored decision wins over what the policy says now (F100)."""
    asked: list[int] = []

    def needs(order: int) -> bool:
        asked.append(order)
        return True

    at = desk(call("pay", order=1), say("ok"), tools=[gated(Counted(), require_confirmation=needs)])
    run = await paused(at)
    await answer(at, "pay")
    await run.wait()
    assert asked == [1]


async def test_a_predicate_that_raises_is_the_calls_error(desk: MakeDesk) -> None:
    """Nothing is executed where nobody can tell whether it may be; the model is told, and the run goes on."""
    pay = Counted()

    def needs(order: int) -> bool:
        raise LookupError("no policy for this")

    at = desk(call("pay", order=1), say("I cannot."), tools=[gated(pay, require_confirmation=needs)])
    assert (await at.ask()).outcome == "completed"
    assert pay.executed == []
    assert statuses(await at.log()) == [("pay", "failed", None)]
    assert "no policy for this" in at.told()


async def test_a_tool_that_asks_itself_is_executed_again_with_the_yes(desk: MakeDesk, store: Store) -> None:
    """Hint and payload reach who answers, what comes with the yes reaches the tool, and the first return counts not."""
    seen: list[tuple[int, Any]] = []

    async def pay(order: int, ctx: ToolContext) -> str:
        """Pay."""
        confirmed = ctx.confirmation
        seen.append((ctx.attempt, confirmed and (confirmed.by, confirmed.payload)))
        if confirmed is None:
            ctx.request_confirmation("Pay it?", payload={"sum": 30})
            return "not yet"
        return "paid"

    at = desk(call("pay", order=1), say("Paid."), store=store, tools=[pay])
    run = await paused(at)
    asked = await question(at)
    assert (asked.kind, asked.hint, asked.payload) == ("confirmation", "Pay it?", {"sum": 30})
    await at.runner.answer(run.run_id, asked.call_id, {"account": "B"}, by="bob")
    await run.wait()
    assert seen == [(1, None), (2, ("bob", {"account": "B"}))]
    assert [start.attempt for start in await at.starts("pay")] == [1, 2]
    assert len({start.idempotency_key for start in await at.starts("pay")}) == 1
    assert (await at.settled())["pay"].response == {"result": "paid"}


async def test_a_tool_that_asks_itself_and_hears_no_is_not_executed_again(desk: MakeDesk) -> None:
    """The call is settled as denied."""
    calls: list[int] = []

    async def pay(ctx: ToolContext) -> None:
        """Pay."""
        calls.append(ctx.attempt)
        ctx.request_confirmation("Pay it?")

    at = desk(call("pay"), say("Not paid."), tools=[pay])
    run = await paused(at)
    await answer(at, "pay", "no money", accept=False)
    await run.wait()
    assert calls == [1]
    assert statuses(await at.log()) == [("pay", "denied", None)]


async def test_a_blocking_tool_may_ask_itself(desk: MakeDesk) -> None:
    """From its thread."""

    def pay(ctx: ToolContext) -> str:
        """Pay."""
        if ctx.confirmation is None:
            ctx.request_confirmation("Pay it?")
        return "paid"

    at = desk(call("pay"), say("ok"), tools=[pay])
    run = await paused(at)
    await answer(at, "pay")
    await run.wait()
    assert (await at.settled())["pay"].response == {"result": "paid"}


async def test_call_id_and_confirmation_id_are_alike(desk: MakeDesk) -> None:
    """Either id reaches the one question; saying yes executes the tool and is never its result (F94)."""
    for suffix in ("", ":confirmation"):
        pay = Counted("paid")
        at = desk(call("pay"), say("ok"), tools=[gated(pay)])
        await paused(at)
        await reply(at, response((await question(at)).call_id + suffix, confirmed=True))
        assert len(pay.executed) == 1
        assert (await at.settled())["pay"].response == {"result": "paid"}


async def test_a_result_may_be_given_instead(desk: MakeDesk) -> None:
    """`as_result` settles the call with the value, and the tool is not executed."""
    pay = Counted()
    at = desk(call("pay"), say("ok"), tools=[gated(pay)])
    run = await paused(at)
    await answer(at, "pay", {"paid": "by hand"}, as_result=True)
    await run.wait()
    assert pay.executed == []
    assert (await at.settled())["pay"].response == {"paid": "by hand"}


@pytest.mark.parametrize("value", [False, True, {"confirmed": False}, {"confirmed": True}])
async def test_a_value_that_looks_like_a_decision_is_none(desk: MakeDesk, value: Any) -> None:
    """`answer(…, False)` would otherwise be a yes with a value: it is refused, and nothing is executed."""
    pay = Counted("paid")
    at = desk(call("pay"), say("ok"), tools=[gated(pay)])
    run = await paused(at)
    with pytest.raises(AnswerInvalidError, match="accept="):
        await answer(at, "pay", value)
    assert pay.executed == []
    await answer(at, "pay", value, accept=False)  # as a reason it says what it likes
    await run.wait()
    assert statuses(await at.log()) == [("pay", "denied", None)]


@pytest.mark.parametrize(
    "both", [{"accept": False, "args": {}}, {"accept": False, "as_result": True}, {"args": {}, "as_result": True}]
)
async def test_answers_that_contradict_themselves_are_refused(desk: MakeDesk, both: dict[str, Any]) -> None:
    """A no with edited arguments, a result with a no: nobody can tell what was meant."""
    pay = Counted("paid")
    at = desk(call("pay"), say("ok"), tools=[gated(pay)])
    await paused(at)
    with pytest.raises(InputError, match="pass one"):
        await answer(at, "pay", **both)
    assert (pay.executed, of(await at.log(), Answered)) == ([], [])


@pytest.mark.parametrize("medium", BOTH)
async def test_a_question_outlives_its_process(desk: MakeDesk, medium: Medium, tmp_path: Path) -> None:
    """After a restart it is listed and answered by id, from the store alone, and the run goes on (F87, F102, F103)."""
    shelf, first_pay, pay = Shelf(medium, tmp_path), Counted(), Counted("paid")
    first: Desk = desk(call("pay", order=7), store=shelf.store(), tools=[gated(first_pay)])
    run = await paused(first)
    await first.runner.aclose()
    second = desk(say("Paid."), store=shelf.store(), tools=[gated(pay)])
    asked = await question(second)
    assert (asked.run_id, asked.tool, asked.args) == (run.run_id, "pay", {"order": 7})
    attached = await second.runner.attach(run.run_id)
    seen = [record async for record in attached.stream()]
    assert isinstance(seen[-1], Paused)  # a reader that comes later sees the question, and then the end of the stream
    await second.runner.answer(asked.run_id, asked.call_id)
    assert await attached.result() == "Paid."
    assert (first_pay.executed, pay.executed) == ([], [{"order": 7}])


async def test_callbacks_before_the_tool_are_asked_once_and_behind_the_yes(desk: MakeDesk) -> None:
    """They guard what is really executed, and nothing is executed that only was proposed."""
    told: list[dict[str, Any]] = []

    def before(tool: Tool, args: dict[str, Any], ctx: ToolContext) -> None:
        told.append(dict(args))

    at = desk(call("pay", order=7), say("ok"), tools=[gated(Counted())], before_tool_callback=before)
    run = await paused(at)
    assert told == []
    await answer(at, "pay", args={"order": 8})
    await run.wait()
    assert told == [{"order": 8}]


async def test_two_pauses_in_one_run(desk: MakeDesk) -> None:
    """The second question of a run is a pause like the first, and what was done before is not done again (F92, F93)."""
    pay = Counted()
    at = desk(call("pay", order=1), call("pay", order=2), say("ok"), tools=[gated(pay)])
    run = await paused(at, config=GOES_ON)
    await answer(at, "pay")
    assert [item for item in [r async for r in run.stream()] if isinstance(item, Paused) and not item.held]
    await run.ending_or_pause()
    await answer(at, "pay")
    assert (await run.wait()).outcome == "completed"
    assert pay.executed == [{"order": 1}, {"order": 2}]
    assert attempts(await at.log()) == [(1, "message"), (2, "answer"), (3, "answer")]


async def test_a_response_without_confirmed_is_no_confirmation(desk: MakeDesk) -> None:
    """A result for a call that wants a yes or no is the wrong kind, and decides nothing."""
    at = desk(call("pay"), tools=[gated(Counted())])
    await paused(at)
    asked = await question(at)
    with pytest.raises(AnswerKindError):
        await reply(at, FunctionResponse(call_id=asked.call_id, name="pay", response={"result": "Approved by user"}))
    assert of(await at.log(), Answered) == []
