"""Conversations that the provider holds: what is sent after stops, pauses, losses and rewinds.

The emulator stores answers as the provider does, and judges each request together with all that it holds before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace
from openai import AsyncOpenAI

from heaveto import (
    App,
    BaseAgent,
    Delta,
    FunctionTool,
    LlmAgent,
    MemoryStore,
    OpenAIResponses,
    Plugin,
    RunConfig,
    RunEnded,
    Runner,
    SequentialAgent,
    Store,
)
from heaveto.core.request import ModelRequest, Turn
from heaveto.events.contents import Content, Opaque, Text
from heaveto.testing import Emulator, call, finish, give, hang, raw_call, say
from heaveto.testing.promises import check_promises

HERE = {"user_id": "ann", "session_id": "s"}
QUICK = RunConfig(cancel_grace_seconds=0.02)
MakeAgent = Callable[[OpenAIResponses], BaseAgent]
Asked = list[tuple[str | None, list[str]]]


class Bench:
    """A session of an agent whose model is asked over HTTP."""

    def __init__(
        self, emulator: Emulator, *tools: Any, store: Store | None = None, agent: MakeAgent | None = None, **app: Any
    ) -> None:
        self.emulator, self.store = emulator, store or MemoryStore()
        self.model = OpenAIResponses("m", base_url=emulator.openai_url, held=True)
        make = agent or (lambda model: LlmAgent("clerk", model, tools=tools))
        self.runner = Runner(app=App("held", make(self.model), **app), store=self.store)

    async def ask(self, text: str) -> RunEnded:
        return await (await self.runner.start(new_message=text, run_config=QUICK, **HERE)).wait()

    def asked(self) -> Asked:
        """The pointer of each request, and what kinds of items it sent."""
        return [
            (body.get("previous_response_id"), [item.get("type") or item["role"] for item in body["input"]])
            for body in (exchange.body for exchange in self.emulator.exchanges)
        ]

    async def aclose(self) -> None:
        records = await self.runner.records(**HERE)
        await self.runner.aclose()
        await self.model.aclose()
        check_promises(records)


MakeBench = Callable[..., Awaitable[Bench]]


@pytest.fixture
async def bench() -> AsyncGenerator[MakeBench, None]:
    opened: list[Any] = []

    async def make(*steps: Any, tools: tuple[Any, ...] = (), **options: Any) -> Bench:
        emulator = await Emulator(*steps, strict_unconfirmed=True).__aenter__()
        opened.append(emulator)
        made = Bench(emulator, *tools, **options)
        opened.append(made)
        return made

    yield make
    for one in reversed(opened):
        await (one.aclose() if isinstance(one, Bench) else one.__aexit__(None, None, None))


def look() -> str:
    """Look."""
    return "seen"


async def test_a_request_carries_only_what_is_new(bench: MakeBench) -> None:
    """Through calls, further messages and another process: the pointer stands in the log (P9)."""
    at = await bench(call("look"), say("a"), say("b"), say("c"), tools=(look,))
    await at.ask("one")
    await at.ask("two")
    elsewhere = Bench(at.emulator, look, store=at.store)
    await elsewhere.ask("three")
    await elsewhere.model.aclose()
    assert at.asked() == [
        (None, ["user"]),
        ("resp_1", ["function_call_output"]),
        ("resp_2", ["user"]),
        ("resp_3", ["user"]),
    ]
    assert all(exchange.body["store"] for exchange in at.emulator.exchanges)
    at.emulator.assert_done()


async def test_an_open_call_is_settled_where_the_provider_holds_it(bench: MakeBench) -> None:
    """The answer with the call was stored, and the run was stopped before the call had its output (F39)."""
    began = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        began.set()
        await asyncio.sleep(600)

    at = await bench((call("wait"), call("wait")), say("ok"), tools=(wait,))
    run = await at.runner.start(new_message="go", run_config=QUICK, **HERE)
    await began.wait()
    await run.cancel()
    await at.ask("next")
    assert at.asked()[1] == ("resp_1", ["function_call_output", "function_call_output", "user"])
    outputs = at.emulator.exchanges[1].body["input"][:2]
    assert [output["call_id"] for output in outputs] == ["call_1", "call_2"]
    assert all("the user stopped" in output["output"] for output in outputs), outputs
    at.emulator.assert_done()


@pytest.mark.parametrize(
    ("rest", "sent"),
    [((), []), ((call("look"),), ["function_call", "function_call_output"])],
    ids=["in its text", "behind a call"],
)
async def test_an_answer_that_was_stopped_is_not_pointed_to(
    bench: MakeBench, rest: tuple[Any, ...], sent: list[str]
) -> None:
    """What the provider keeps of it is uncertain, also of a call in it: the pointer steps back, and what was seen is
    sent, calls with their results (F39)."""
    at = await bench(say("a"), (say("Hel"), *rest, hang()), say("ok"), tools=(look,))
    await at.ask("one")
    run = await at.runner.start(new_message="two", run_config=QUICK, **HERE)
    async for event in run.stream(deltas=True):
        if isinstance(event, Delta) and event.kind == ("args" if rest else "text"):
            break
    await run.cancel()
    await at.ask("three")
    assert at.asked()[2] == ("resp_1", ["user", "assistant", *sent, "user"])
    assert at.emulator.exchanges[2].body["input"][1]["content"][0]["text"] == "Hel"
    at.emulator.assert_done()


async def test_a_stop_in_the_first_answer_leaves_nothing_to_point_to(bench: MakeBench) -> None:
    """Then the next request is a first one."""
    at = await bench(hang(), say("ok"))
    run = await at.runner.start(new_message="one", run_config=QUICK, **HERE)
    await at.emulator.exchange(0)
    await run.cancel()
    await at.ask("two")
    assert at.asked() == [(None, ["user"]), (None, ["user"])]


async def test_an_answer_cut_by_a_limit_is_not_gone_on_from(bench: MakeBench) -> None:
    """Its last call is no call; what the log says of it is sent."""
    at = await bench(say("a"), (raw_call("look", '{"a'), finish("length", cut=True)), say("ok"), tools=(look,))
    await at.ask("one")
    await at.ask("two")
    assert at.asked()[2] == ("resp_1", ["user", "function_call", "function_call_output"])
    at.emulator.assert_done()


async def test_two_approvals_one_after_the_other_send_each_output_once(bench: MakeBench) -> None:
    """The first one's output is behind the pointer when the second one is given (F40)."""
    pay = FunctionTool(look, name="pay", require_confirmation=True)
    at = await bench(call("pay"), call("pay"), say("both"), tools=(pay,))
    run = await at.runner.start(new_message="go", **HERE)
    for _ in range(2):
        await run.ending_or_pause()
        (question,) = await at.runner.questions(**HERE)
        await at.runner.answer(run.run_id, question.call_id)
    assert await run.result() == "both"
    assert at.asked() == [(None, ["user"]), ("resp_1", ["function_call_output"]), ("resp_2", ["function_call_output"])]
    at.emulator.assert_done()


async def test_what_the_provider_has_lost_is_sent_again_once(bench: MakeBench) -> None:
    """Deleted or expired there: the whole conversation goes out, in the same run, and is held again (R12)."""
    at = await bench(call("look"), say("a"), say("b"), say("c"), tools=(look,))
    await at.ask("one")
    async with AsyncOpenAI(base_url=at.emulator.openai_url, api_key="k") as client:
        await client.responses.delete("resp_2")
    ended = await at.ask("two")
    await at.ask("three")
    assert (ended.outcome, ended.llm_calls) == ("completed", 1)
    assert at.asked()[2:] == [
        ("resp_2", ["user"]),
        (None, ["user", "function_call", "function_call_output", "assistant", "user"]),
        ("resp_3", ["user"]),
    ]
    refused = [exchange.violation.rule for exchange in at.emulator.exchanges if exchange.violation is not None]
    assert refused == ["R12"]


async def test_a_rewound_answer_is_not_gone_on_from(bench: MakeBench) -> None:
    """The pointer is the last answer that still counts, and so the provider forgets what was taken back."""
    at = await bench(say("a"), say("b"), say("c"))
    await at.ask("one")
    second = await at.ask("two")
    await at.runner.rewind(before_run=second.run_id, **HERE)
    await at.ask("other")
    assert at.asked()[2] == ("resp_1", ["user"])
    at.emulator.assert_done()


async def test_agents_have_a_conversation_each(bench: MakeBench) -> None:
    """What another agent said is sent as a quotation; nobody goes on from another's answer."""

    def team(model: OpenAIResponses) -> BaseAgent:
        return SequentialAgent("team", sub_agents=[LlmAgent("a", model), LlmAgent("b", model)])

    at = await bench(say("a1"), say("b1"), say("a2"), say("b2"), agent=team)
    await at.ask("one")
    await at.ask("two")
    assert [pointer for pointer, _ in at.asked()] == [None, None, "resp_1", "resp_2"]
    at.emulator.assert_done()


class Adding(Plugin):
    """Puts words into requests that the log does not have."""

    async def before_model(self, ctx: Any, request: ModelRequest) -> ModelRequest:
        return replace(request, turns=[Turn("user", (Text(text="It is Monday."),)), *list(request.turns)[1:]])


async def test_turns_that_a_callback_made_are_sent_whole_and_not_stored(bench: MakeBench) -> None:
    """Otherwise the provider would hold what the log does not know."""
    at = await bench(say("a"), say("b"), plugins=[Adding()])
    await at.ask("one")
    await at.ask("two")
    assert at.asked() == [(None, ["user"]), (None, ["user", "assistant", "user"])]
    assert [exchange.body["store"] for exchange in at.emulator.exchanges] == [False, False]


async def test_an_answer_that_a_callback_changed_is_not_gone_on_from(bench: MakeBench) -> None:
    """The provider holds the original."""

    async def soften(ctx: Any, content: Content) -> Content | None:
        return Content.of("b, please") if content.text == "b" else None

    at = await bench(
        say("a"), say("b"), say("c"), agent=lambda model: LlmAgent("clerk", model, after_model_callback=soften)
    )
    for text in ("one", "two", "three"):
        await at.ask(text)
    assert at.asked()[2] == ("resp_1", ["user", "assistant", "user"])
    at.emulator.assert_done()


@pytest.mark.parametrize("held", [True, False])
async def test_a_custom_tool_is_called_with_its_text(held: bool) -> None:
    """The function of its name gets the text, and the output has the type that such a call wants (R2)."""
    patched: list[str] = []

    def patch(input: str) -> str:
        patched.append(input)
        return "done"

    item = {"type": "custom_tool_call", "call_id": "call_x", "name": "patch", "input": '*** "a"\n'}
    async with Emulator(give(Opaque(provider="openai-responses", data=item)), say("ok")) as emulator:
        tools = [{"type": "custom", "name": "patch"}]
        model = OpenAIResponses("m", base_url=emulator.openai_url, held=held, provider_tools=tools)
        async with Runner(LlmAgent("clerk", model, tools=[patch])) as runner:
            run = await runner.start(new_message="go", **HERE)
            assert await run.result() == "ok"
        await model.aclose()
        emulator.assert_done()
    first, second = (exchange.body for exchange in emulator.exchanges)
    assert (patched, first["tools"]) == ([item["input"]], tools)
    assert second["input"][-1] == {
        "type": "custom_tool_call_output",
        "call_id": "call_x",
        "output": '{"result":"done"}',
    }
    assert len(second["input"]) == (1 if held else 3)
