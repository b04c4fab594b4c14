"""Logs: grammatical ones, as the runner writes them, and wild ones, which nobody should ever have written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from hypothesis import strategies as st
from tests.core.logs import Log

from heaveto.core.close import Ending, Work
from heaveto.events.contents import (
    Blob,
    Content,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
)
from heaveto.events.records import (
    AgentCheckpoint,
    Answered,
    CallProgress,
    CallSettled,
    CallStarted,
    CancelRequested,
    Cause,
    Compacted,
    Draft,
    ErrorInfo,
    Limits,
    Message,
    Paused,
    PauseRequested,
    Queued,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    StateChanged,
    Transferred,
    Usage,
    WaitingCall,
)

FAMILIES = ("openai", "openai-responses", "anthropic", "gemini")
AGENTS = ("root", "helper", "p1", "p2", "tool_agent")
BRANCHES = ("", "par", "par.p1", "par.p2", "x@CALL", "par.p1@c1", "@c1", "par.p1.deeper")
STOPS: tuple[Cause, ...] = (
    "user", "deadline", "budget", "guardrail", "shutdown", "superseded", "disconnect", "lease_lost",
)  # fmt: skip
CAUSES: tuple[Cause, ...] = (*STOPS, "crash", "error", "expired")


# --- parts --------------------------------------------------------------------------------------------------------


def signed_thought(provider: str, text: str) -> Thought:
    """A thought as its provider signs it."""
    data: dict[str, Any] | None = None
    if provider == "anthropic":
        data = {"type": "thinking", "thinking": text, "signature": "c2ln"}
    if provider == "openai-responses":
        data = {"type": "reasoning", "summary": [], "encrypted_content": "c2ln"}
    return Thought(text=text, signature="c2ln", provider=provider, data=data)


def searched(provider: str, call_id: str, *, answered: bool) -> tuple[Part, ...]:
    """A search that the provider made itself, as it sends one."""
    if provider == "gemini":
        call: dict[str, Any] = {"toolCall": {"id": call_id, "toolType": "GOOGLE_SEARCH_WEB", "args": {}}}
        made = ProviderCall(id=call_id, name="search", provider=provider, data=call)
        back: dict[str, Any] = {"toolResponse": {"id": call_id, "toolType": "GOOGLE_SEARCH_WEB", "response": {}}}
        return (made, ProviderResult(id=call_id, provider=provider, data=back)) if answered else (made,)
    data: dict[str, Any] = {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {}}
    asked = ProviderCall(id=call_id, name="web_search", provider=provider, data=data)
    if not answered:
        return (asked,)
    found: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}
    return asked, ProviderResult(id=call_id, provider=provider, data=found)


_TEXTS = ("", " ", "\n", "hello", "a longer text with “quotes” and ünïcode", '{"json": 1}', "[Late result]")
_ATTACHMENTS: tuple[Part, ...] = (
    Blob(mime_type="image/png", content=b"\x89PNG"),
    Blob(mime_type="application/x", content=b""),
    FileRef(uri="https://host/file.pdf", mime_type="application/pdf"),
    FileRef(uri="", mime_type=""),
)
_RESPONSES: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    {"result": 1},
    {"error": "no"},
    {"status": "pending"},
    {"$ref": "x", "content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
)
_CALL_IDS = ("c1", "c2", "c3", "CALL", "a.b:c/é", "x" * 90, "")
_RUN_IDS = ("r1", "r2", "r3", "")

families = st.sampled_from(("", "cohere", *FAMILIES))
call_ids = st.sampled_from(_CALL_IDS)
run_ids = st.sampled_from(_RUN_IDS)
branches = st.sampled_from(BRANCHES)
agents = st.sampled_from((*AGENTS, "user", ""))
seqs = st.one_of(st.integers(0, 30), st.sampled_from([-1, 10**9]))
optional_causes = st.none() | st.sampled_from(CAUSES)
responses = st.sampled_from(_RESPONSES)


@st.composite
def wild_parts(draw: st.DrawFn) -> Part:
    family = draw(families)
    match draw(st.integers(0, 9)):
        case 0 | 1:
            return Text(text=draw(st.sampled_from(_TEXTS)), provider=family)
        case 2:
            return Thought(text=draw(st.sampled_from(_TEXTS)), provider=family)
        case 3:
            return signed_thought(family, draw(st.sampled_from(_TEXTS)))
        case 4 | 5 | 6:
            return draw(wild_calls(family))
        case 7:
            return draw(st.sampled_from(_ATTACHMENTS))
        case 8:
            return FunctionResponse(call_id=draw(call_ids), name="t", response={"result": "in a message"})
        case _:
            server_id = f"srvtoolu_{draw(st.integers(0, 10**9))}"
            parts = searched(family, server_id, answered=True)
            return draw(st.sampled_from((*parts, Opaque(provider=family))))


@st.composite
def wild_calls(draw: st.DrawFn, family: str) -> FunctionCall:
    return FunctionCall(
        call_id=draw(call_ids),
        name=draw(st.sampled_from(("t", "", "2fa", "a.b c", "n" * 90))),
        args=draw(st.sampled_from(({}, {"q": 1}, {"$ref": "x"}))),
        provider=family,
        provider_id=draw(st.sampled_from((None, "", "call_0", "a b"))),
        defect=draw(st.sampled_from(("", "truncated", "invalid"))),
        data=draw(st.sampled_from((None, {"thoughtSignature": "c2ln"}))) if family == "gemini" else None,
    )


wild_contents = st.lists(wild_parts(), max_size=3).map(lambda parts: Content(tuple(parts)))


def _record(kind: Callable[..., Record], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Record]:
    return st.builds(kind, id=st.just("id"), time=st.just(1.0), run_id=run_ids, **fields)


_messages = _record(
    Message,
    author=agents,
    parts=st.lists(wild_parts(), max_size=4).map(tuple),
    branch=branches,
    seen=seqs,
    interrupted=optional_causes,
    escalate=st.booleans(),
    usage=st.none() | st.just(Usage(1, 2)),
)
_settlements = _record(
    CallSettled,
    call_id=call_ids,
    status=st.sampled_from(("succeeded", "failed", "denied", "cancelled", "not_started", "unknown")),
    response=responses,
    cause=optional_causes,
    late=st.booleans(),
    end_turn=st.booleans(),
    escalate=st.booleans(),
)
_waiting = st.builds(
    WaitingCall,
    call_id=call_ids,
    kind=st.sampled_from(("long_running", "confirmation", "input", "client", "operator")),
    deadline=st.none() | st.just(5.0),
)
_rewrites = st.one_of(_record(Compacted, upto=seqs, summary=wild_contents), _record(Rewound, to=seqs))
wild_records = st.one_of(
    _messages,
    _messages,
    _settlements,
    _settlements,
    _record(CallStarted, call_id=call_ids, attempt=st.integers(0, 2)),
    _record(RunStarted, input=wild_contents, attempt=st.integers(0, 2), limits=st.just(Limits(llm_calls=3))),
    _record(
        RunEnded,
        outcome=st.sampled_from(("completed", "cancelled", "failed")),
        cause=optional_causes,
        error=st.none() | st.just(ErrorInfo("E", "why")),
    ),
    _record(Queued, input=wild_contents),
    _record(CancelRequested, cause=st.sampled_from(CAUSES)),
    _record(CancelRequested, cause=st.just("user"), delivered=st.integers(0, 6)),
    _record(Paused, waiting=st.lists(_waiting, max_size=2).map(tuple), held=st.booleans()),
    _record(Answered, call_id=call_ids, decision=st.sampled_from(("approve", "deny", "value", "result"))),
    _record(PauseRequested),
    _record(CallProgress, call_id=call_ids, value=st.just(1)),
    _record(StateChanged, delta=st.sampled_from(({}, {"a": 1}, {"a": None}, {"app:a": 1}, {"user:b": None}))),
    _record(AgentCheckpoint, agent=agents, branch=branches, end_of_agent=st.booleans()),
    _record(Transferred, agent=st.sampled_from(("root", "root/helper")), author=agents, branch=branches),
    _rewrites,
)


@st.composite
def wild_logs(draw: st.DrawFn, max_size: int = 30) -> list[Record]:
    """Any records in any order."""
    log = Log()
    size = draw(st.integers(0, max_size))
    for record in draw(st.lists(wild_records, min_size=size, max_size=size)):
        log.put(record)
    return log.records


# --- logs as the runner writes them -------------------------------------------------------------------------------

Steps = Iterator[None]
_Way = Literal["go on", "steer", "queue", "late", "stop", "crash", "fail"]


class _Paused(Exception):
    pass


class Scribe:
    """Writes a session as the runner would: what may happen between two records is drawn.

    Every text, result and tool name is used once, so that a test can look for it. Each agent is a generator that stops
    wherever the runner waits; there the scribe may let something come from the side, or end the run.
    """

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.log = Log()
        self._count = 0
        self._run_id = ""
        self._requests: dict[tuple[str, str], int] = {}
        self._stragglers: list[str] = []
        self._queued: list[str] = []

    def mark(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count};"

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) >= 100 - percent

    def pick(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    # --- a run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Carry out one run, from its start to its end; or leave it paused and go on with its next attempt."""
        self._run_id = self._queued.pop(0) if self._queued else self._next_run_id()
        run, log = self.log.state.run(self._run_id), self.log
        if run.cancel is not None:
            self._never_run()
            return
        log.run(self._run_id, run.input if run.input.parts else self.mark("user"))
        agent = self.log.state.active_agent or "root"
        work = self._workflow() if self.chance(30) else self._agent(agent, "")
        for _ in range(3):
            try:
                ended = self._drive(work)
            except _Paused:
                if self.chance(30):
                    self._beside()
                work = self._resume(agent)
                continue
            if not ended:
                log.end(self._run_id)
            return
        self._close("stop")

    def _beside(self) -> None:
        """Carry out another run while this one waits (`on_text="keep"`)."""
        run_id, requests = self._run_id, self._requests
        if self.log.state.current is None and len(self.log.state.paused) < 3:
            self._requests = {}
            self.run()
        self._run_id, self._requests = run_id, requests

    def _next_run_id(self) -> str:
        return f"run{len(self.log.state.runs) + 1}"

    def _never_run(self) -> None:
        run = self.log.state.run(self._run_id)
        assert run.cancel is not None
        if run.cancel.cause == "superseded":
            self.log.run(self._run_id, run.input)
        self.log.cancel(self._run_id, run.cancel.cause)

    def _drive(self, work: Steps) -> bool:
        """Go on until the work is over, or something ends it; return whether the run was ended."""
        for _ in work:
            way = self._way()
            match way:
                case "go on":
                    pass
                case "steer":
                    self.log.say(self._run_id, self.mark("user"), author="user")
                case "queue":
                    self._queue()
                case "late":
                    self._late_result()
                case _:
                    self._close(way)
                    return True
        return False

    def _way(self) -> _Way:
        number = self._draw(st.integers(0, 99))
        if number < 75:
            return "go on"
        return ("steer", "queue", "late", "late", "stop", "stop", "crash", "fail")[(number - 75) % 8]

    def _queue(self) -> None:
        run_id = f"{self._next_run_id()}q"
        self.log.add(Queued, run_id=run_id, input=Content.of(self.mark("user")))
        self._queued.append(run_id)
        if self.chance(20):
            self.log.ask_to_stop(run_id, self.pick("user", "superseded"))

    def _late_result(self) -> None:
        if self._stragglers:
            call_id = self._stragglers.pop(self._draw(st.integers(0, len(self._stragglers) - 1)))
            status = self.pick("succeeded", "failed")
            self.log.settle("", call_id, status, response={"value": self.mark("res")}, late=True)

    def _close(self, way: _Way) -> None:
        ending = Ending("failed", "crash") if way == "crash" else Ending("failed", error=ErrorInfo("ModelError", "503"))
        if way == "stop":
            ending = Ending("cancelled", self.pick(*STOPS))
            self.log.ask_to_stop(self._run_id, ending.cause or "user")
        drafts = [self._draft(agent, branch, seen) for (agent, branch), seen in self._requests.items()]
        self._requests.clear()
        work: dict[str, Work] = {}
        if way != "crash":
            work = {call_id: self.pick("stopped", "still_running") for call_id in self.log.state.calls}
        self.log.close(self._run_id, ending, drafts=drafts, work=work)
        self._stragglers += [
            call_id
            for call_id, call in self.log.state.calls.items()
            if call.run_id == self._run_id and call.awaits_late_result
        ]

    def _draft(self, agent: str, branch: str, seen: int) -> Draft:
        parts, _ = self._answer(max_calls=1)
        parts = parts if self.chance(70) else self.pick((), (Text(text=" "),), (Thought(text="half"),))
        return Draft(
            message_id=self.mark("draft"), run_id=self._run_id, author=agent, branch=branch, parts=parts, seen=seen,
            usage=self.pick(None, Usage(5, 7, estimated=True)),
        )  # fmt: skip

    # --- agents ---------------------------------------------------------------------------------------------------

    def _workflow(self) -> Steps:
        """Two agents side by side, then one that sees both."""
        sides = [self._agent("p1", "par.p1"), self._agent("p2", "par.p2")]
        while sides:
            side = self.pick(*sides)
            if next(side, "over") == "over":
                sides.remove(side)
            else:
                yield
        yield from self._agent("root", "")

    def _agent(self, agent: str, branch: str, depth: int = 0) -> Steps:
        for _ in range(self._draw(st.integers(1, 3))):
            seen = self._requests[agent, branch] = self.log.last_seq
            yield
            parts, calls = self._answer(max_calls=0 if depth > 1 else 3)
            del self._requests[agent, branch]
            self.log.say(
                self._run_id, *parts, author=agent, branch=branch, seen=seen, usage=Usage(10, 1), provider="anthropic"
            )
            yield
            if calls:
                yield from self._calls(agent, branch, calls, depth)
                if self.chance(25):
                    yield from self._transfer(agent, branch, depth)
                    break
            elif self.log.state.run(self._run_id).steered_seq <= seen or branch:
                break
        self.log.add(AgentCheckpoint, run_id=self._run_id, agent=agent, branch=branch, end_of_agent=True)

    def _transfer(self, agent: str, branch: str, depth: int) -> Steps:
        other = "helper" if agent == "root" else "root"
        self.log.add(Transferred, run_id=self._run_id, agent=other, author=agent, branch=branch)
        yield from self._agent(other, branch, depth + 1)

    def _answer(self, max_calls: int) -> tuple[tuple[Part, ...], list[FunctionCall]]:
        family = self.pick(*FAMILIES)
        calls = [self._call(family) for _ in range(self._draw(st.integers(0, max_calls)))]
        parts: list[Part] = []
        if self.chance(30):
            parts.append(self.pick(signed_thought(family, "why"), Thought(text="why", provider=family)))
        if self.chance(15):
            parts += searched(family, f"srvtoolu_{self._count}", answered=self.chance(50))
        if not calls or self.chance(50):
            parts.append(Text(text=self.mark("said")))
        return (*parts, *calls), calls

    def _call(self, family: str) -> FunctionCall:
        number = self.mark("")[:-1]
        return FunctionCall(
            call_id=f"id{number}", name=f"tool_{number}_", provider=family, provider_id=self.pick(None, "call_0")
        )

    def _calls(self, agent: str, branch: str, calls: list[FunctionCall], depth: int) -> Steps:
        """Some are refused, some wait for an answer, the others run at once or in turn and end in any order."""
        ready = [call for call in calls if not self._refuse(call)]
        waiting = [call for call in ready if not branch and self.chance(15)]
        ready = [call for call in ready if call not in waiting]
        if waiting:
            self._hold(waiting)
        yield
        at_once = self.chance(70)
        if at_once:
            self.log.start(self._run_id, *(call.call_id for call in ready))
            yield
        for call in self._draw(st.permutations(ready)):
            if not at_once:
                self.log.start(self._run_id, call.call_id)
                yield
            if depth == 0 and self.chance(10):
                yield from self._as_tool(f"{branch}@{call.call_id}")
            if self.chance(10):
                self.log.add(CallProgress, run_id=self._run_id, call_id=call.call_id, value=1)
            self._settle(call)
            yield
        if waiting:
            self._pause(waiting)

    def _refuse(self, call: FunctionCall) -> bool:
        if not self.chance(10):
            return False
        self.log.settle(self._run_id, call.call_id, "failed", response={"error": self.mark("res")})
        return True

    def _settle(self, call: FunctionCall) -> None:
        status, key = self.pick(("succeeded", "value"), ("succeeded", "value"), ("failed", "error"))
        self.log.settle(self._run_id, call.call_id, status, response={key: self.mark("res")})

    def _as_tool(self, branch: str) -> Steps:
        self.log.say(self._run_id, self.mark("user"), author="user", branch=branch)
        yield from self._agent("tool_agent", branch, depth=1)

    # --- pauses ---------------------------------------------------------------------------------------------------

    def _pause(self, waiting: list[FunctionCall]) -> None:
        """Those that got no answer while the others worked hold the run up."""
        if self.chance(30):
            self._answer_one(waiting[0])
        calls = self.log.state.calls
        left = [calls[call.call_id].question for call in waiting if calls[call.call_id].is_waiting]
        if left:
            self.log.pause(self._run_id, *(question for question in left if question is not None))
        raise _Paused

    def _hold(self, waiting: list[FunctionCall]) -> None:
        """A long-running call has begun when it waits; one that wants a confirmation has not. The run goes on."""
        for call in waiting:
            if self.chance(50):
                self.log.start(self._run_id, call.call_id)
        kind = self.pick("confirmation", "input", "client", "long_running")
        self.log.pause_held(self._run_id, *(WaitingCall(call.call_id, kind, deadline=9.0) for call in waiting))

    def _answer_one(self, call: FunctionCall) -> None:
        decision = self.pick("approve", "approve", "deny", "value", "result")
        self.log.answer(self._run_id, call.call_id, decision, expired=decision == "deny" and self.chance(30))

    def _resume(self, agent: str) -> Steps:
        yield  # a stop may come while it waits
        run = self.log.state.run(self._run_id)
        waiting = [call.call for call in run.calls.values() if call.phase == "waiting"]
        for call in waiting:
            if run.calls[call.call_id].is_waiting:
                self._answer_one(call)
                yield
        self.log.go_on(self._run_id)
        yield
        for call in waiting:
            yield from self._go_on_with(call)
        yield from self._agent(agent, "")

    def _go_on_with(self, call: FunctionCall) -> Steps:
        """Do what the answer says: execute the call, take the answer as its result, or do neither."""
        answer = self.log.state.calls[call.call_id].answer
        assert answer is not None
        match answer.decision:
            case "approve":
                self.log.start(self._run_id, call.call_id)
                yield
                self._settle(call)
            case "deny":
                cause: Cause | None = "expired" if answer.expired else None
                reason = {"reason": self.mark("res")} if self.chance(50) else None
                self.log.settle(self._run_id, call.call_id, "denied", response=reason, cause=cause)
            case _:
                self.log.settle(self._run_id, call.call_id, response={"value": self.mark("res")})
        yield

    # --- between runs ---------------------------------------------------------------------------------------------

    def rewrite(self) -> None:
        """Put a summary in the place of what was, or take some of it back."""
        last = self.log.last_seq
        if self.chance(50):
            self.log.add(Compacted, upto=self._draw(st.integers(0, last)), summary=Content.of(self.mark("summary")))
        else:
            self.log.add(Rewound, to=self._draw(st.integers(0, last)))


@st.composite
def grammatical_logs(draw: st.DrawFn, *, max_runs: int = 4, rewrites: bool = False) -> list[Record]:
    """A session of some runs; with `rewrites` also summaries and rewinds between them."""
    scribe = Scribe(draw)
    for _ in range(draw(st.integers(1, max_runs))):
        scribe.run()
        if rewrites and scribe.chance(60):
            scribe.rewrite()
    return scribe.log.records
