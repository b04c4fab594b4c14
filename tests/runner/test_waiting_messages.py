"""What a message that waits keeps, and what holds for it when its turn comes."""

from __future__ import annotations

from pathlib import Path

from tests.crash.workers import HERE, Worker, Yard
from tests.runner.desk import Desk, Held, as_text

from heaveto import AgentContext, BaseAgent, MemoryStore, RunConfig, SequentialAgent, ToolContext
from heaveto.events.records import CallSettled, Message, RunStarted
from heaveto.testing import FakeClock, call, gate, say, settle


def kill(worker: Worker) -> None:
    """Let a worker's process be dead for all others."""
    assert isinstance(worker.store, MemoryStore)
    worker.store.abandon()


async def test_settings_and_state_of_a_waiting_message_survive_its_process(tmp_path: Path) -> None:
    """Whoever carries out a message that another process took in does it as its sender asked (F156)."""
    yard = Yard("memory", tmp_path)
    first = yard.worker((say("half"), gate()))
    await first.start("one")
    config = RunConfig(max_llm_calls=7, tool_execution_mode="SEQUENTIAL", cancel_grace_seconds=0.5)
    waiting = await first.runner.start(new_message="two", run_config=config, state_delta={"lang": "en"}, **HERE)
    kill(first)
    second = yard.worker(say("fine"))
    await second.runner.recover()
    started = [record for record in await second.log() if isinstance(record, RunStarted)]
    assert [record.run_id for record in started][-1] == waiting.run_id
    assert started[-1].limits == config.limits
    assert RunConfig.of_settings(config.settings) == config
    assert (await second.runner.state(**HERE))["lang"] == "en"
    await yard.close()


async def test_a_deadline_that_passed_while_the_message_waited_begins_nothing() -> None:
    """A run whose time is up when its turn comes makes no model call."""
    clock, held = FakeClock(), Held()
    desk = Desk(call("held"), say("done"), say("late"), tools=[held.tool()], clock=clock)
    await desk.start("one")
    await held.began.wait()
    waiting = await desk.start("two", RunConfig(deadline=clock.time() + 5))
    await clock.advance(10)
    held.may_end.set()
    ended = await waiting.wait()
    assert (ended.outcome, ended.cause) == ("cancelled", "deadline")
    assert desk.model.calls == 2
    await desk.runner.aclose()


class Step(BaseAgent):
    """Says its name, once let go."""

    async def run(self, ctx: AgentContext) -> None:
        await ctx.say(self.name)


class HeldStep(Step):
    """A step that waits in the middle."""

    def __init__(self, name: str, held: Held) -> None:
        super().__init__(name)
        self._held = held

    async def run(self, ctx: AgentContext) -> None:
        await self._held()
        await super().run(ctx)


async def test_a_workflow_is_not_run_again_for_a_steered_text() -> None:
    """A text for a run that cannot take it in waits for its turn; no step of the workflow is repeated for it."""
    held = Held()
    desk = Desk(agent=SequentialAgent("flow", sub_agents=[Step("a"), HeldStep("b", held)]))
    first = await desk.start("one")
    await held.began.wait()
    steered = await desk.start("two", RunConfig(busy_policy="steer"))
    assert steered.run_id != first.run_id
    held.may_end.set()
    await steered.wait()
    said = [record.author for record in await desk.messages()]
    assert said == ["a", "b", "a", "b"]
    await desk.runner.aclose()


async def test_temporary_state_of_a_start_is_seen_and_not_recorded() -> None:
    """``temp:`` values that come with a message live as long as its run."""
    seen: list[object] = []

    async def look(ctx: ToolContext) -> None:
        """Look at the state."""
        seen.append(ctx.state.get("temp:token"))

    desk = Desk(call("look"), say("done"), tools=[look])
    await desk.ask(state_delta={"temp:token": "t", "kept": 1})
    assert seen == ["t"]
    assert await desk.state() == {"kept": 1}
    await desk.runner.aclose()


async def test_a_late_result_brings_the_state_that_its_tool_set() -> None:
    """What a tool set is recorded with its result, also when that comes after the run's end."""
    held = Held(swallow=99)

    async def book(ctx: ToolContext) -> str:
        """Book, whatever happens."""
        await held()
        ctx.state["booked"] = True
        return "booked"

    desk = Desk(call("book"), say("ok"), tools=[book])
    run = await desk.start()
    await held.began.wait()
    report = await run.cancel(by="ann")
    assert [operation.state for operation in report.operations] == ["still_running"]
    held.may_end.set()
    while not any(isinstance(record, CallSettled) and record.late for record in await desk.log()):
        await settle()
    assert (await desk.state())["booked"] is True
    await desk.runner.aclose()


async def test_what_a_worker_finishes_after_it_lost_its_session_is_recorded_late(tmp_path: Path) -> None:
    """The real result of a tool is told although its run was taken over and its call closed as unknown (F73)."""
    yard, held = Yard("memory", tmp_path), Held("paid", swallow=99)
    first = yard.worker(call("held"), tools=[held.tool()])
    assert isinstance(first.store, MemoryStore)
    run = await first.start("pay")
    await held.began.wait()
    first.store.data.alive.discard(first.store.owner)  # taken for dead, and not: a stopped process that comes back
    second = yard.worker(say("I see."))
    await second.runner.recover()
    held.may_end.set()
    while not any(isinstance(record, CallSettled) and record.late for record in await second.log()):
        await settle()
    await second.ask("and?")
    assert "paid" in as_text(second.model.requests[-1].turns)
    assert not [record for record in await second.log() if isinstance(record, Message) and record.run_id == run.run_id][
        1:
    ]
    await yard.close()
