"""Pauses under everything at once: Hypothesis plays users, approvers, models, killers and deployments on two workers.

Time stands still unless the machine moves it. After each step the log keeps its promises, no call has run that might
not, and whatever waits is listed; at the end every run has ended, and what was approved has happened once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.crash.test_lane_machine import HERE, NEVER, Asked, HeldModel
from tests.effort import examples

from heaveto import AgentTool, App, FunctionTool, LlmAgent, MemoryStore, RunConfig, Runner, ToolContext
from heaveto.core.fold import CallState, fold
from heaveto.core.project import project
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.errors import AgentTreeChangedError, AnswerError, InputError, SessionWaitingError, UnknownCallError
from heaveto.events.records import Answered, CallSettled, Record, Replay, RunEnded, RunStarted, SessionKey
from heaveto.models.base import CallChunk, Chunk, EndChunk, TextChunk
from heaveto.runner.application.app import OnTreeChange
from heaveto.runner.application.config import OnText
from heaveto.runner.session.desk import Question
from heaveto.stores.memory import MemoryData
from heaveto.testing import FakeClock
from heaveto.testing.clock import settle
from heaveto.testing.crash import CrashingStore
from heaveto.testing.promises import check_promises
from heaveto.testing.request_check import find_breach
from heaveto.tools.base import Tool
from heaveto.tools.outside import ClientTool, LongRunningFunctionTool, RequestInputTool

KEY = SessionKey("pauses", "u", "s")
T = TypeVar("T")
ARGS = {"sub": '{"request": "pay it"}', "ask": '{"question": "which?"}'}
GATED = ("pay", "mail", "urgent")
TOOLS = (*GATED, "careful", "look", "ask", "find", "dig", "ship")
REFUSED = (AnswerError, InputError, UnknownCallError, AgentTreeChangedError)


@dataclass(frozen=True)
class Code:
    """What is deployed: a tool may be gone, wait for other answers, or be safe to repeat or not."""

    gone: str = ""
    schema: str = "string"
    mail: Replay = "safe"
    on_tree_change: OnTreeChange = "fail"


codes = st.builds(
    Code, st.sampled_from(("", "", "", "pay", "ask", "look")), st.sampled_from(("string", "integer")),
    st.sampled_from(("safe", "never")), st.sampled_from(("fail", "close")),
)  # fmt: skip


@dataclass
class World:
    """What is outside: effects by idempotency key, and the arguments of the last one."""

    effects: Counter[str] = field(default_factory=Counter)
    args: dict[str, int] = field(default_factory=dict[str, int])

    def act(self, ctx: ToolContext, n: int) -> str:
        self.effects[ctx.idempotency_key] += 1
        self.args[ctx.call_id] = n
        return f"did {n}"


def make_tools(world: World, code: Code) -> dict[str, Tool]:
    async def act(ctx: ToolContext, n: int = 1) -> str:
        """Act."""
        await asyncio.sleep(0)
        return world.act(ctx, n)

    async def careful(ctx: ToolContext, n: int = 1) -> str:
        """Ask first."""
        if ctx.confirmation is None:
            ctx.request_confirmation("really?")
            return ""
        return world.act(ctx, n)

    async def dig(ctx: ToolContext) -> None:
        """Begin."""
        world.act(ctx, 0)

    async def ship(ctx: ToolContext) -> str:
        """Begin, with a number."""
        return world.act(ctx, 0)

    tools: list[Tool] = [
        FunctionTool(act, name="pay", require_confirmation=True),
        FunctionTool(act, name="mail", require_confirmation=True, replay=code.mail),
        FunctionTool(act, name="urgent", require_confirmation=True, confirm_within_seconds=60.0),
        FunctionTool(careful),
        FunctionTool(act, name="look"),
        RequestInputTool("ask", schema={"type": code.schema}),
        ClientTool("find", "Find.", {"type": "object"}),
        LongRunningFunctionTool(dig),
        LongRunningFunctionTool(ship),
    ]
    return {tool.name: tool for tool in tools if tool.name != code.gone}


class Process:
    """One worker with the code of its time."""

    def __init__(self, data: MemoryData, clock: FakeClock, world: World, code: Code) -> None:
        self.memory = MemoryStore(data, clock=clock)
        self.store = CrashingStore(self.memory, after=NEVER)
        self.model = HeldModel()
        tools = make_tools(world, code)
        inner = LlmAgent("sub", self.model, tools=list(tools.values()))
        agent = LlmAgent("root", self.model, tools=[*tools.values(), AgentTool(inner)])
        app = App(KEY.app, agent, on_tree_change=code.on_tree_change)
        self.runner = Runner(app=app, store=self.store, clock=clock)

    def kill(self) -> None:
        self.store.kill()
        self.memory.abandon()

    def die_after(self, appends: int) -> None:
        self.store._after = self.store.appends + appends  # pyright: ignore[reportPrivateUsage]


class Pauses(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.data, self.clock, self.world = MemoryData(), FakeClock(), World()
        self.runs: list[str] = []
        self.dead: list[Process] = []
        self.given: list[Answered] = []
        self.number = 0

    def do(self, work: Coroutine[Any, Any, T], process: Process | None = None) -> T | None:
        """Do something; None where its process dies meanwhile."""

        async def bounded() -> T | None:
            task = asyncio.ensure_future(work)
            for _ in range(60):
                await settle()
                if task.done() or (process is not None and process.store.died.is_set()):
                    break
                await self.clock.advance(0.25)
            await settle()
            if not task.done():
                assert process is not None and process.store.died.is_set(), f"hangs: {task}"
                process.store.bury()
                task.cancel()
                await asyncio.wait({task})
                return None
            return task.result()

        try:
            return self.loop.run_until_complete(bounded())
        finally:
            self._replace_dead()

    @initialize()
    def open(self) -> None:
        self.processes = [self._process(Code()), self._process(Code())]

    def _process(self, code: Code) -> Process:
        return Process(self.data, self.clock, self.world, code)

    def _replace_dead(self, code: Code | None = None) -> None:
        for place, process in enumerate(getattr(self, "processes", [])):
            if process.store.died.is_set():
                process.memory.abandon()
                self.dead.append(process)
                self.processes[place] = self._process(code or Code())

    @property
    def log(self) -> list[Record]:
        async def read() -> list[Record]:
            return await MemoryStore(self.data).read(KEY)

        return self.loop.run_until_complete(read()) if KEY in self.data.sessions else []

    @property
    def asked(self) -> list[Asked]:
        return [asked for process in self.processes for asked in process.model.asked if not asked.answer.done()]

    def questions(self, where: int = 0) -> list[Question]:
        if KEY not in self.data.sessions:
            return []
        while True:
            process = self.processes[where]
            listed = self.do(process.runner.questions(**HERE), process)
            if listed is not None:
                return listed

    # --- users and models

    @rule(where=st.integers(0, 1), on_text=st.sampled_from(["decline", "keep", "reject"]))
    def start(self, where: int, on_text: OnText) -> None:
        self.number += 1
        process, run_id = self.processes[where], f"run-{self.number}"
        config = RunConfig(on_text=on_text, cancel_grace_seconds=0.5)
        start = process.runner.start(new_message=f"<{self.number}>", run_id=run_id, run_config=config, **HERE)
        try:
            if self.do(start, process) is not None:
                self.runs.append(run_id)
        except SessionWaitingError:
            assert on_text == "reject"

    @precondition(lambda self: self.asked)
    @rule(calls=st.lists(st.sampled_from((*TOOLS, "sub")), max_size=3))
    def model_answers(self, calls: Sequence[str]) -> None:
        asked = self.asked[0]
        names = [name for name in calls if name != "sub" or asked.request.agent == "root"]
        chunks: list[Chunk] = [TextChunk("so:")]
        chunks += [
            CallChunk(index, name=name, provider_id=f"p{index}", args=ARGS.get(name, "{}"))
            for index, name in enumerate(names)
        ]
        asked.answer.set_result([*chunks, EndChunk()])
        self.do(settle())

    # --- whoever answers

    @precondition(lambda self: KEY in self.data.sessions)
    @rule(data=st.data(), where=st.integers(0, 1), accept=st.booleans(), wrong=st.booleans(), twice=st.booleans())
    def answer(self, data: st.DataObject, where: int, accept: bool, wrong: bool, twice: bool) -> None:
        questions = self.questions(where)
        if not questions:
            return
        question = data.draw(st.sampled_from(questions))
        more = data.draw(_ways(question, wrong=wrong))
        for _ in range(1 + twice):
            self._give(where, question.run_id, question.call_id, accept=accept, **more)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), where=st.integers(0, 1), same=st.booleans())
    def answer_again(self, data: st.DataObject, where: int, same: bool) -> None:
        """Long after: the same is harmless, another one changes nothing."""
        first = data.draw(st.sampled_from(self.given))
        before = [record for record in self.log if isinstance(record, Answered) and record.call_id == first.call_id]
        accept = (first.decision != "deny") is same
        self._give(
            where, first.run_id, first.call_id, value=first.value, accept=accept, args=first.args,
            as_result=first.decision == "result" and same,
        )  # fmt: skip
        after = [record for record in self.log if isinstance(record, Answered) and record.call_id == first.call_id]
        assert before == after

    def _give(self, where: int, run_id: str, call_id: str, **more: Any) -> None:
        process = self.processes[where]
        try:
            given = self.do(process.runner.answer(run_id, call_id, **more), process)
        except REFUSED:
            return
        if given is not None:
            assert given in [record for record in self.log if isinstance(record, Answered)]
            self.given.append(given)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), where=st.integers(0, 1))
    def cancel(self, data: st.DataObject, where: int) -> None:
        run_id, process = data.draw(st.sampled_from(self.runs)), self.processes[where]
        # A run that is paused beside one that works is closed when that one is done.
        report = self.do(_bounded(process.runner.cancel(run_id), self.clock), process)
        if report is not None:
            assert any(isinstance(record, RunEnded) and record.run_id == run_id for record in self.log)

    @precondition(lambda self: KEY in self.data.sessions)
    @rule(data=st.data(), where=st.integers(0, 1))
    def cancel_call(self, data: st.DataObject, where: int) -> None:
        questions, process = self.questions(where), self.processes[where]
        if questions:
            one = data.draw(st.sampled_from(questions))
            self.do(_bounded(process.runner.cancel_call(one.run_id, one.call_id), self.clock), process)
            assert one.call_id not in {left.call_id for left in self.questions(where)} or process in self.dead

    # --- accidents and deployments

    @rule(where=st.integers(0, 1), code=codes)
    def crash(self, where: int, code: Code) -> None:
        self.processes[where].kill()
        self._replace_dead(code)
        self.do(settle())

    @rule(where=st.integers(0, 1), appends=st.integers(1, 3))
    def crash_soon(self, where: int, appends: int) -> None:
        self.processes[where].die_after(appends)

    @rule(where=st.integers(0, 1))
    def recover(self, where: int) -> None:
        self._recover(self.processes[where])

    def _recover(self, process: Process) -> None:
        async def begin() -> None:
            recovery = asyncio.ensure_future(process.runner.recover())
            await settle()
            if recovery.done():
                recovery.result()

        self.do(begin(), process)

    @rule(seconds=st.sampled_from([1.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.do(self.clock.advance(seconds))

    # --- what must hold

    @invariant()
    def promises_are_kept(self) -> None:
        log, listed = self.log, {one.call_id for one in self.questions()}
        while len(self.log) != len(log):  # processes went on while the questions were read
            log, listed = self.log, {one.call_id for one in self.questions()}
        check_promises(log, open_runs=1)
        for process in [*self.processes, *self.dead]:
            assert not process.model.breaches, process.model.breaches
        for agent in ("root", "sub"):
            assert find_breach(ModelRequest(turns=project(log, agent, ModelProfile("anthropic")))) is None
        state = fold(log)
        assert listed == {call_id for call_id, known in state.calls.items() if known.is_waiting}
        for call in _all_calls(log):
            self._check_call(call, log)

    def _check_call(self, call: CallState, log: Sequence[Record]) -> None:
        effects = self.world.effects[f"{call.run_id}:{call.call.call_id}"]
        answers = [r for r in log if isinstance(r, Answered) and r.call_id == call.call.call_id]
        approved = [r for r in answers if r.decision == "approve" and not r.expired]
        name = call.call.name
        if name in (*GATED, "careful"):
            assert not effects or approved, f"{name} ran without a yes"
            assert len(answers) <= 1, f"{name} was answered {answers}"
        if name != "mail":
            assert effects <= 1, f"{name} ran {effects} times"
        settled = [r for r in log if isinstance(r, CallSettled) and r.call_id == call.call.call_id]
        if settled and settled[0].status in ("denied", "not_started"):
            assert not effects, f"{name} ran, and is said to be {settled[0].status}"
        if settled and settled[-1].status == "succeeded" and name in (*GATED, "careful") and approved:
            assert effects, f"{name} never ran, and is said to have succeeded"
            args = approved[0].args or {}
            assert self.world.args[call.call.call_id] == args.get("n", 1)

    # --- the end

    def teardown(self) -> None:
        try:
            if hasattr(self, "processes"):
                self._run_out()
                self._check_the_end()
        finally:
            self.loop.run_until_complete(self._bury())
            self.loop.close()

    def _run_out(self) -> None:
        """Bring all tools back, answer everything, and let models say something."""
        for process in self.processes:
            process.kill()
        self._replace_dead()
        for _ in range(100):
            self._recover(self.processes[0])
            for asked in self.asked:
                asked.answer.set_result([TextChunk("that was it"), EndChunk()])
            for question in self.questions():
                value = {"confirmation": None, "input": "blue"}.get(question.kind, {})
                if question.kind == "input" and question.schema == {"type": "integer"}:
                    value = 5
                self._give(0, question.run_id, question.call_id, value=value)
            self.do(self.clock.advance(5.0))
            if not self.asked and self._is_quiet():
                return
        pytest.fail("the session does not come to rest")

    def _is_quiet(self) -> bool:
        return not self.questions() and not self.do(self.processes[0].memory.unfinished())

    def _check_the_end(self) -> None:
        log = self.log
        self.promises_are_kept()
        ended = {record.run_id: record for record in log if isinstance(record, RunEnded)}
        started = {record.run_id for record in log if isinstance(record, RunStarted)}
        assert started <= set(ended)
        assert set(self.runs) <= set(ended)
        for call in _all_calls(log):
            key = f"{call.run_id}:{call.call.call_id}"
            answers = [r for r in log if isinstance(r, Answered) and r.call_id == call.call.call_id]
            if ended[call.run_id].outcome == "completed" and answers and answers[0].decision == "approve":
                statuses = [r.status for r in log if isinstance(r, CallSettled) and r.call_id == call.call.call_id]
                assert statuses and (
                    self.world.effects[key] >= 1 or statuses[0] in ("unknown", "not_started", "failed")
                )

    async def _bury(self) -> None:
        for process in [*self.dead, *getattr(self, "processes", [])]:
            process.store.bury()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        while others := {task for task in others if not task.done()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=0.01)


async def _bounded(work: Coroutine[Any, Any, T], clock: FakeClock) -> T | None:
    """Whoever stops something waits for its end; None where that takes too long for them."""
    task = asyncio.ensure_future(work)
    for _ in range(8):
        await clock.advance(0.25)
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
        return None
    return task.result()


def _ways(question: Question, *, wrong: bool) -> st.SearchStrategy[dict[str, Any]]:
    """What somebody may say to a question."""
    if wrong:
        return st.sampled_from(({"value": [1]}, {"args": {"n": "x"}}, {"args": {"n": 2, "zz": 1}}, {"value": None}))
    if question.kind == "confirmation":
        return st.sampled_from(({}, {"args": {"n": 2}}, {"value": "payload"}, {"value": "mine", "as_result": True}))
    if question.kind == "input":
        return st.sampled_from(({"value": "blue"}, {"value": 5}))
    return st.sampled_from(({"value": {"x": 1}}, {"value": None}))


def _all_calls(log: Sequence[Record]) -> list[CallState]:
    """Every call that the log ever made, as it was proposed."""
    state, calls = fold(()), dict[str, CallState]()
    for record in log:
        state.apply(record)
        for run in state.runs.values():
            calls.update(run.calls)
    return list(calls.values())


SETTINGS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


class Longer(Pauses):
    """The same, with more steps."""


Pauses.TestCase.settings = settings(SETTINGS, max_examples=examples(30), stateful_step_count=20)
Longer.TestCase.settings = settings(SETTINGS, max_examples=examples(25), stateful_step_count=50)
TestPauses = Pauses.TestCase
TestLonger = pytest.mark.slow(pytest.mark.timeout(600)(Longer.TestCase))
