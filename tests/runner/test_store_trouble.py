"""A store that fails for a while, and values that it cannot take: no text is lost, no session stays locked or open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from tests.runner.desk import QUICK, USER, Desk, Held, kinds

from heaveto import LlmAgent, MemoryStore, RunConfig, Runner
from heaveto.agents.base import BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.agents.tool import AgentTool
from heaveto.core.request import ModelRequest
from heaveto.errors import InputError, NotSerializableError, StoreBusyError, StoreFullError
from heaveto.events.contents import text_of
from heaveto.events.records import Message, Record, SessionKey
from heaveto.models.base import Chunk, EndChunk, TextChunk
from heaveto.stores.base import Lease
from heaveto.testing import ScriptedModel, call, hang, raw_call, say
from heaveto.tools.base import ToolContext


class TroubledStore(MemoryStore):
    """Fails as it is told: `fails_append` judges each batch, `fails_release` counts down, `is_full` fails all."""

    def __init__(self) -> None:
        super().__init__()
        self.fails_append: Callable[[Sequence[Record]], bool] = lambda _: False
        self.fails_release = 0
        self.is_full = False

    async def append(self, key: SessionKey, records: Sequence[Record], **options: Any) -> int:
        if self.is_full:
            raise StoreFullError("full")
        if self.fails_append(records):
            raise StoreBusyError("busy")
        return await super().append(key, records, **options)

    async def release(self, lease: Lease, *, settled: Sequence[str] = ()) -> None:
        if self.is_full or self.fails_release > 0:
            self.fails_release -= 1
            raise StoreFullError("full")
        await super().release(lease, settled=settled)


def once(kind: type[Record]) -> Callable[[Sequence[Record]], bool]:
    """Fail the first batch that holds such a record."""
    failed: list[bool] = []

    def fails(records: Sequence[Record]) -> bool:
        if failed or not any(isinstance(record, kind) for record in records):
            return False
        failed.append(True)
        return True

    return fails


@pytest.mark.parametrize("answer", [(say("You saw this."), call("look")), say("You saw this.")], ids=["call", "text"])
async def test_an_answer_that_was_seen_is_kept_though_the_store_failed_for_a_moment(
    desk: Callable[..., Desk], answer: Any
) -> None:
    """The append that holds a model's answer fails once: the text is in the log at the end of the run (P4)."""
    store = TroubledStore()
    store.fails_append = once(Message)

    def look() -> None:
        """Look."""

    one = desk(answer, say("And this."), store=store, tools=[look])
    await one.ask()
    assert "You saw this." in [text_of(message.parts) for message in await one.messages()]


async def test_a_session_is_not_locked_by_a_release_that_failed(desk: Callable[..., Desk]) -> None:
    """The lease could not be given back: the next message gives it back first, and runs."""
    store = TroubledStore()
    store.fails_release = 1
    one = desk(say("One."), say("Two."), store=store)
    assert (await one.ask()).outcome == "completed"
    async with asyncio.timeout(10):
        assert (await one.ask()).outcome == "completed"


async def test_a_disk_that_was_full_is_forgotten_when_there_is_space(desk: Callable[..., Desk]) -> None:
    """Full in mid-tool: run, next message and stop say so; with space again the next message runs (F112)."""
    store, held = TroubledStore(), Held()
    one = desk(call("held"), say("Next."), store=store, tools=[held.tool()])
    run = await one.start()
    await held.began.wait()
    store.is_full = True
    held.may_end.set()
    for action in (run.wait, one.start, run.cancel):
        with pytest.raises(StoreFullError):
            await action()
    store.is_full = False
    async with asyncio.timeout(10):
        assert (await one.ask()).outcome == "completed"
    assert (await one.settled())["held"].status == "unknown"


class Checkpointing(BaseAgent):
    """Says something, and records what cannot be recorded."""

    async def run(self, ctx: AgentContext) -> None:
        await ctx.say("Seen.")
        await ctx.checkpoint({"score": float("nan")})


class OddModel(ScriptedModel):
    """Ends its answer with provider data that no log can hold."""

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        yield TextChunk("Seen.")
        yield EndChunk("stop", data={"logprob": float("nan")})


async def test_a_record_that_cannot_be_stored_fails_its_run_and_nothing_else(desk: Callable[..., Desk]) -> None:
    """The run fails with the real reason; its ending and what was said are recorded; the session goes on (P4, P7)."""
    one = desk(agent=Checkpointing("root"))
    for _ in range(2):
        ended = await one.ask()
        assert ended.error is not None
        assert (ended.outcome, ended.error.type) == ("failed", "NotSerializableError")
    assert [text_of(message.parts) for message in await one.messages()] == ["Seen.", "Seen."]


async def test_provider_data_that_no_log_can_hold_does_not_fail_a_run(desk: Callable[..., Desk]) -> None:
    """What cannot be stored of it is replaced, and the answer stands (P4)."""
    one = desk(agent=LlmAgent("root", OddModel()))
    assert (await one.ask()).outcome == "completed"
    assert [text_of(message.parts) for message in await one.messages()] == ["Seen."]


async def test_numbers_that_no_log_can_hold_do_not_fail_a_run(desk: Callable[..., Desk]) -> None:
    """An integer of more than 64 bits, from a model or a tool, is a failed call, and told as such."""

    def count(upto: int = 0) -> int:
        """Count."""
        return 10**30

    one = desk((raw_call("count", '{"upto": 1' + "0" * 30 + "}"), call("count")), say("I see."), tools=[count])
    assert (await one.ask()).outcome == "completed"
    assert [record.status for record in await one.log() if hasattr(record, "status")] == ["failed", "failed"]


async def test_a_state_key_that_no_log_can_hold_is_refused_where_it_is_set(desk: Callable[..., Desk]) -> None:
    """The tool gets the error; its result, and the state that others set, are recorded."""

    def act(ctx: ToolContext) -> str:
        """Act."""
        with pytest.raises(NotSerializableError):
            ctx.state["caf\udce9"] = 1
        ctx.state["good"] = 1
        return "done"

    one = desk(call("act"), say("Yes."), tools=[act])
    assert (await one.ask()).outcome == "completed"
    assert await one.state() == {"good": 1}


async def test_a_message_that_no_log_can_hold_is_refused(desk: Callable[..., Desk]) -> None:
    """Half a character in a message is a typed error at the start."""
    with pytest.raises(NotSerializableError):
        await desk().start("caf\udce9")


@pytest.mark.parametrize("name", ["deadline", "max_seconds", "max_cost", "cancel_grace_seconds"])
def test_a_setting_that_no_log_can_hold_is_refused_when_it_is_made(name: str) -> None:
    """Infinity is no number for a log: None says that there is no limit."""
    with pytest.raises(InputError, match=name):
        RunConfig(**{name: float("inf")})


def test_settings_of_another_version_do_not_hold_up_a_message() -> None:
    """What a waiting message was sent with, and this version does not know or allow, is left out."""
    config = RunConfig.of_settings({"busy_policy": "telepathy", "later": 1, "max_llm_calls": 7})
    assert config == RunConfig(max_llm_calls=7)


async def test_an_agent_that_works_as_a_tool_hands_over_within_its_own_tree(desk: Callable[..., Desk]) -> None:
    """A transfer inside an agent tool goes to the agent that was named; the conversation's own agent stays."""
    model = ScriptedModel(
        call("helper", request="do it"), call("transfer_to_agent", agent_name="leaf"), say("Done."), say("It is done.")
    )
    helper = LlmAgent("helper", model, sub_agents=[LlmAgent("leaf", model)])
    one = desk(agent=LlmAgent("root", model, tools=[AgentTool(helper)]), model=model)
    assert (await one.ask()).outcome == "completed"
    said = [(message.author, text_of(message.parts)) for message in await one.messages()]
    assert ("leaf", "Done.") in said
    assert said[-1] == ("root", "It is done.")


async def test_runs_of_more_sessions_than_are_kept_in_mind_are_all_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that start while others push them out of the cache belong to the runner all the same (P3, P6)."""
    monkeypatch.setattr("heaveto.runner.lanes._IDLE_LANES", 2)

    class SlowStore(MemoryStore):
        async def find_run(self, run_id: str) -> SessionKey | None:
            for _ in range(5):
                await asyncio.sleep(0)
            return await super().find_run(run_id)

    model = ScriptedModel(hang(), strict=False)
    runner = Runner(LlmAgent("root", model), store=SlowStore())
    starts = [
        runner.start(user_id=USER, session_id=f"s{number}", run_id=f"r{number}", new_message="go", run_config=QUICK)
        for number in range(60)
    ]
    runs = await asyncio.gather(*starts)
    await runner.aclose()
    assert {run.status for run in runs} == {"cancelled"}
    assert model.active == 0


async def test_a_batch_of_the_closing_is_written_once(desk: Callable[..., Desk]) -> None:
    """Where the store fails behind a write that it has done, the repeated ending is not there twice (F117)."""

    class ForgetfulStore(MemoryStore):
        forgets = True

        async def append(self, key: SessionKey, records: Sequence[Record], **options: Any) -> int:
            seq = await super().append(key, records, **options)
            if self.forgets and "RunEnded" in kinds(records):
                self.forgets = False
                raise StoreBusyError("busy")
            return seq

    one = desk(say("Hello."), store=ForgetfulStore())
    assert (await one.ask()).outcome == "completed"
    assert kinds(await one.log()).count("RunEnded") == 1
