"""The Anthropic connector, over real HTTP against the emulator. What it shares with others is in the model contract."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from heaveto.agents.llm import LlmAgent
from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, FunctionResponse, ProviderCall, ProviderResult, Text, Thought
from heaveto.events.records import Delta, Message, RunEnded, Usage
from heaveto.models.anthropic_messages import AnthropicMessages
from heaveto.models.base import PauseChunk
from heaveto.models.prices import Prices
from heaveto.models.wire.anthropic import AnthropicEncoder, continued
from heaveto.models.wire.anthropic_answer import AnthropicAnswerReader
from heaveto.runner.application.config import RunConfig
from heaveto.runner.handle import Run
from heaveto.runner.runner import Runner
from heaveto.stores.memory import MemoryStore
from heaveto.testing.emulator import Emulator
from heaveto.testing.model_contract import ASK, answered, ask, with_turns
from heaveto.testing.script import call, cut, fault, finish, gate, give, hang, say, think, usage

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ü"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "x"}]}
SEARCHING = give(ProviderCall(id="srvtoolu_1", name="web_search", provider="anthropic", data=SEARCH))
HAVING_FOUND = give(ProviderResult(id="srvtoolu_1", provider="anthropic", data=FOUND))
WEB = {"type": "web_search_20260209", "name": "web_search"}
SAID = {"type": "text", "text": "Well:"}
SEARCH_MORE, FOUND_MORE = {**SEARCH, "id": "srvtoolu_2"}, {**FOUND, "tool_use_id": "srvtoolu_2"}
SEARCHING_MORE = give(ProviderCall(id="srvtoolu_2", name="web_search", provider="anthropic", data=SEARCH_MORE))
HAVING_FOUND_MORE = give(ProviderResult(id="srvtoolu_2", provider="anthropic", data=FOUND_MORE))
PAUSED = (say("Well:"), SEARCHING, usage(10, 2), finish("pause_turn"))


def connect(emulator: Emulator, **options: Any) -> AnthropicMessages:
    return AnthropicMessages("m", base_url=emulator.anthropic_url, provider_tools=[WEB], **options)


async def run_it(model: AnthropicMessages, **config: Any) -> tuple[RunEnded, list[Message]]:
    async with Runner(LlmAgent("root", model)) as runner:
        run = await runner.start(user_id="u", session_id="s", new_message="hi", run_config=RunConfig(**config))
        ended = await run.wait()
        records = [record async for record in run.stream(deltas=False)]
    return ended, [record for record in records if isinstance(record, Message)]


# --- answers that pause -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
async def test_a_paused_answer_is_one_answer_of_several_requests(stream: bool) -> None:
    """It is sent back as it is, last, with the same tools, and goes on (F22); all requests are counted and paid."""
    again = (HAVING_FOUND, SEARCHING_MORE, usage(20, 3), finish("pause_turn"))
    async with Emulator(
        PAUSED, again, (HAVING_FOUND_MORE, say("So."), usage(30, 4)), strict_unconfirmed=True
    ) as emulator:
        model = connect(emulator, stream=stream)
        ended, (message,) = await run_it(model)
        await model.aclose()
    bodies = [exchange.body for exchange in emulator.exchanges]
    assert [body["tools"] for body in bodies] == [bodies[0]["tools"]] * 3
    assert bodies[1]["messages"] == [*bodies[0]["messages"], {"role": "assistant", "content": [SAID, SEARCH]}]
    assert bodies[2]["messages"][-1]["content"] == [SAID, SEARCH, FOUND, SEARCH_MORE]
    assert message.finish_reason == "end_turn"
    assert [type(part) for part in message.parts] == [
        Text, ProviderCall, ProviderResult, ProviderCall, ProviderResult, Text,
    ]  # fmt: skip
    assert message.usage == Usage(60, 9)
    assert ended.outcome == "completed"
    emulator.assert_done()


async def test_pauses_are_bounded_by_the_runs_budget() -> None:
    """A provider that pauses for ever is not asked for ever (F22); what it said is kept."""
    async with Emulator(PAUSED, strict=False) as emulator:
        model = connect(emulator)
        ended, (message,) = await run_it(model, max_llm_calls=1)
        await model.aclose()
    assert ended.outcome == "failed" and ended.error is not None
    assert ended.error.type == "LlmCallsLimitExceededError"
    assert len(emulator.exchanges) == 1
    assert message.interrupted is not None and message.parts[0] == Text(text="Well:")


async def test_a_stop_in_the_continuation_leaves_a_conversation_that_goes_on() -> None:
    """The call without a result is not sent again, what was said before it is (F22, A17)."""
    door = gate()
    async with Emulator(PAUSED, (door, HAVING_FOUND), say("Fine."), strict_unconfirmed=True) as emulator:
        model = connect(emulator)
        async with Runner(LlmAgent("root", model)) as runner:
            run = await runner.start(user_id="u", session_id="s", new_message="hi")
            await door.reached()
            assert (await run.cancel()).outcome == "cancelled"
            await asyncio.wait_for(emulator.exchanges[1].over(), 2)
            run = await runner.start(user_id="u", session_id="s", new_message="never mind")
            assert await run.result() == "Fine."
        await model.aclose()
    assert emulator.exchanges[1].closed_at is not None
    assert emulator.exchanges[2].body["messages"][1] == {"role": "assistant", "content": [SAID]}


async def test_a_crash_in_the_continuation_goes_on_with_what_was_there() -> None:
    """What had its result is kept; the call that was pending is not sent again (F22, A17)."""
    door, first = gate(), MemoryStore()
    begun = (SEARCHING, HAVING_FOUND, *PAUSED[:1], SEARCHING_MORE, finish("pause_turn"))
    async with Emulator(begun, door, say("Back again."), strict_unconfirmed=True) as emulator:
        model = connect(emulator)
        runner = Runner(LlmAgent("root", model), store=first)
        run = await runner.start(user_id="u", session_id="s", new_message="hi")
        await door.reached()
        await saved(first, run)
        first.abandon()
        async with Runner(LlmAgent("root", model), store=MemoryStore(first.data)) as second:
            assert await second.recover() == [run.run_id]
            assert await (await second.attach(run.run_id)).result() == "Back again."
        await runner.aclose()
        await model.aclose()
    assert emulator.exchanges[2].body["messages"][1] == {"role": "assistant", "content": [SEARCH, FOUND, SAID]}
    assert emulator.exchanges[2].violation is None


async def saved(store: MemoryStore, run: Run) -> None:
    """Wait until the draft of a run's answer is in the store."""
    async with asyncio.timeout(5):
        while not await store.drafts(run.session, run.run_id):  # noqa: ASYNC110 - it is saved on a timer
            await asyncio.sleep(0.01)


async def test_a_stopped_answer_has_its_input_exactly() -> None:
    """The provider counted it at the start; the output is estimated from the text (F126, F149)."""
    async with Emulator(
        (say("word " * 80), hang(), usage(123, 1000, cached_tokens=23, cache_write_tokens=50))
    ) as emulator:
        prices = Prices(input=1_000_000, output=0, cached_input=0, cache_write=2_000_000)
        model = connect(emulator, prices=prices)
        async with Runner(LlmAgent("root", model)) as runner:
            run = await runner.start(user_id="u", session_id="s", new_message="hi")
            async for record in run.stream(deltas=True):
                if isinstance(record, Delta):
                    break
            report = await run.cancel()
        await model.aclose()
    assert report.usage == Usage(123, 100, cached_tokens=23, cache_write_tokens=50, estimated=True, cost=50 + 100)


BUSY = [fault("busy", status=529), fault("busy", status=429), cut(), (usage(7), fault("busy", status=529))]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("trouble", BUSY, ids=["overloaded", "too many", "lost", "overloaded behind its start"])
async def test_a_continuation_that_comes_to_nothing_is_sent_again(trouble: Any, stream: bool) -> None:
    """The same request, as often as any other: what was said before it stays (F22, F63)."""
    again = (HAVING_FOUND, say("So."), usage(30, 4))
    async with Emulator(PAUSED, trouble, trouble, again, strict_unconfirmed=True) as emulator:
        model = connect(emulator, stream=stream)
        ended, (message,) = await run_it(model, model_retries=2, retry_backoff_seconds=0)
        await model.aclose()
    bodies = [exchange.body for exchange in emulator.exchanges]
    assert bodies[1] == bodies[2] == bodies[3]
    assert [type(part) for part in message.parts] == [Text, ProviderCall, ProviderResult, Text]
    assert (ended.outcome, message.usage) == ("completed", Usage(40, 6))
    emulator.assert_done()


async def test_retries_of_an_answer_are_those_of_all_its_requests() -> None:
    """A server that stays overloaded ends the run; what was said is kept."""
    busy = fault("busy", status=529)
    async with Emulator(busy, PAUSED, busy, busy, strict=False) as emulator:
        model = connect(emulator)
        ended, (message,) = await run_it(model, model_retries=2, retry_backoff_seconds=0)
        await model.aclose()
    assert (ended.outcome, len(emulator.exchanges)) == ("failed", 4)
    assert message.interrupted is not None and message.parts[0] == Text(text="Well:")


async def test_who_only_reads_gets_the_error_of_a_continuation() -> None:
    """Nobody asks a dead server for ever because he did not know of it."""
    async with Emulator(PAUSED, fault("busy", status=529), strict=False) as emulator:
        model = connect(emulator)
        with pytest.raises(ModelError, match="busy"):
            await ask(model)
        assert len(emulator.exchanges) == 2
        await model.aclose()


async def test_an_error_behind_what_a_continuation_said_is_not_retried() -> None:
    """The answer had gone on: it is kept, and not asked for twice (F63)."""
    async with Emulator(PAUSED, (HAVING_FOUND, fault("busy", status=529)), strict=False) as emulator:
        model = connect(emulator)
        ended, (message,) = await run_it(model, model_retries=3, retry_backoff_seconds=0)
        await model.aclose()
    assert (ended.outcome, len(emulator.exchanges)) == ("failed", 2)
    assert message.parts[0] == Text(text="Well:") and message.usage is not None and message.usage.estimated


async def test_a_container_goes_on_with_the_answer() -> None:
    """Code that the provider executes finds its files again."""
    events = [
        {"type": "message_start", "message": {"container": {"id": "container_1"}, "usage": {"input_tokens": 1}}},
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {"output_tokens": 1}},
    ]
    reader = AnthropicAnswerReader()
    for event in events:
        reader.feed(event)
    body = {"messages": [{"role": "user", "content": [SAID]}]}
    assert continued(body, [SEARCH], reader.container) == {
        "container": "container_1",
        "messages": [*body["messages"], {"role": "assistant", "content": [SEARCH]}],
    }


async def test_an_answer_is_read_to_its_end_before_its_calls_are_executed() -> None:
    """A result of the provider's own tool may come behind a call of ours, in the same answer (F24)."""
    order: list[str] = []

    def look(at: str) -> str:
        order.append("look")
        return at

    step = (SEARCHING, call("look", at="a"), HAVING_FOUND, say("So."))
    async with Emulator(step, say("Done."), strict_unconfirmed=True) as emulator:
        model = connect(emulator)
        async with Runner(LlmAgent("root", model, tools=[look])) as runner:
            run = await runner.start(user_id="u", session_id="s", new_message="hi")
            assert await run.result() == "Done."
        await model.aclose()
    assert order == ["look"] and emulator.exchanges[0].completed_at is not None
    content = emulator.exchanges[1].body["messages"][1]["content"]
    assert [block["type"] for block in content] == ["server_tool_use", "tool_use", "web_search_tool_result", "text"]
    emulator.assert_done()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "retryable"),
    [
        ("overloaded_error", 529, True),
        ("rate_limit_error", 429, True),
        ("api_error", 500, True),
        ("of_next_year", 500, True),
        ("invalid_request_error", 400, False),
        ("authentication_error", 401, False),
    ],
)
async def test_an_error_event_has_the_status_of_its_type(kind: str, status: int, retryable: bool) -> None:
    """It comes behind a status of 200, in mid-stream."""
    body = {"type": "error", "error": {"type": kind, "message": "busy"}}
    async with Emulator((say("ab", chunks=2), fault("busy", status=529, after_chunks=1, body=body))) as emulator:
        model = connect(emulator)
        with pytest.raises(ModelError, match="busy") as error:
            await ask(model)
        await model.aclose()
    assert (error.value.status, error.value.retryable, error.value.body) == (status, retryable, body)


async def test_an_error_says_what_the_server_said() -> None:
    """Its words, without the braces of the body around them; the body is there as data."""
    async with Emulator(say("x"), models=["claude-opus-5"]) as emulator:
        model = AnthropicMessages("claud", api_key="any", base_url=emulator.anthropic_url)
        with pytest.raises(ModelError) as error:
            await ask(model)
        await model.aclose()
    assert (str(error.value), error.value.status) == ("Error code: 404 - model: claud", 404)
    assert error.value.body["error"]["type"] == "not_found_error"


async def test_a_missing_key_is_a_final_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Trying again does not help; the error tells what to set."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ModelError, match="ANTHROPIC_API_KEY") as error:
        await ask(AnthropicMessages("m"))
    assert not error.value.retryable


async def test_an_own_client_is_used_and_left_open() -> None:
    """Proxies, Bedrock and Vertex come in this way; retries stay ours."""
    from anthropic import AsyncAnthropic

    async with Emulator(fault(status=500), say("a")) as emulator:
        client = AsyncAnthropic(api_key="k", base_url=emulator.anthropic_url, max_retries=5)
        model = AnthropicMessages("m", client=client)
        with pytest.raises(ModelError):
            await ask(model)
        assert len(emulator.exchanges) == 1
        await model.aclose()
        assert not client.is_closed()
        assert (await ask(model)).parts == (Text(text="a"),)
        await client.close()


# --- requests ---------------------------------------------------------------------------------------------------------


async def test_settings_are_in_the_providers_words() -> None:
    """A limit is always sent, because this API wants one; own settings win and are joined."""
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    generation = Generation(
        temperature=0.5, stop=("x",), output_schema=schema, tool_choice="required",
        extra={"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
    )  # fmt: skip
    async with Emulator(say("a"), say("b")) as emulator:
        model = connect(emulator, max_tokens=99)
        await ask(model, replace(ASK, generation=generation))
        await ask(model, replace(ASK, generation=Generation(max_output_tokens=7)))
        await model.aclose()
    body = emulator.exchanges[0].body
    assert (body["max_tokens"], body["temperature"], body["stop_sequences"]) == (99, 0.5, ["x"])
    assert (body["thinking"], body["tool_choice"]) == ({"type": "adaptive"}, {"type": "any"})
    closed = {**schema, "additionalProperties": False}
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": closed}, "effort": "high"}
    assert [tool["name"] for tool in body["tools"]] == ["web_search", "look"]
    assert emulator.exchanges[1].body["max_tokens"] == 7


def breakpoints(value: Any) -> int:
    match value:
        case dict():
            return ("cache_control" in value) + sum(breakpoints(inner) for inner in value.values())
        case list():
            return sum(breakpoints(inner) for inner in value)
        case _:
            return 0


def conversation(turns: int) -> list[Turn]:
    """Return so many turns of asking and calling, and a question."""
    done = []
    for place in range(turns // 3):
        made = FunctionCall(call_id=f"c{place}", name="look")
        done += [
            Turn("user", (Text(text=f"question {place}"),)),
            Turn("model", (made,)),
            Turn("tool", (FunctionResponse(call_id=made.call_id, name="look", response={}),)),
            Turn("model", (Text(text="so"),)),
        ]
    return [*done, Turn("user", (Text(text="and?"),))]


@pytest.mark.parametrize(("cache", "mark"), [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})])
def test_caching_marks_tools_system_and_the_newest_messages(cache: Any, mark: dict[str, str]) -> None:
    """Four breakpoints, never more (A26), and none on what may not have one."""
    encoder = AnthropicEncoder(cache=cache)
    look = ToolDeclaration("look", "looks", {"type": "object"})
    for turns in (0, 3, 30):
        body = encoder.encode(ModelRequest(turns=conversation(turns), instruction="Be brief.", tools=(look, look)))
        assert breakpoints(body) == (3 if turns == 0 else 4)
        assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": mark}]
        assert [tool.get("cache_control") for tool in body["tools"]] == [None, mark]
        assert body["messages"][-1]["content"][-1] == {"type": "text", "text": "and?", "cache_control": mark}
    assert breakpoints(encoder.encode(ModelRequest(turns=conversation(3)))) == 2
    assert breakpoints(AnthropicEncoder().encode(ModelRequest(turns=conversation(30), instruction="x"))) == 0


def test_caching_copies_only_what_it_marks() -> None:
    """A request costs what is new in it: the other messages are the same objects each time (P9)."""
    encoder = AnthropicEncoder(cache="5m")
    turns = conversation(7_500)
    first = encoder.encode(ModelRequest(turns=turns))["messages"]
    more = encoder.encode(ModelRequest(turns=[*turns, Turn("model", (Text(text="x"),)), Turn("user", turns[0].parts)]))
    assert breakpoints(first) == breakpoints(more["messages"]) == 2
    shared = sum(one["content"] is other["content"] for one, other in zip(first, more["messages"], strict=False))
    assert shared >= len(first) - 3


async def test_a_second_step_keeps_its_cached_prefix() -> None:
    """The prompt of the next request begins with this one's, byte for byte, but for the breakpoints."""
    async with Emulator((think("hm", signature="c2ln"), call("look", at="a")), say("b")) as emulator:
        model = connect(emulator, cache=True)
        await ask(model, answered(model, await ask(model)))
        await model.aclose()
    first, second = (unmarked(exchange.body["messages"]) for exchange in emulator.exchanges)
    assert second[: len(first)] == first


def unmarked(value: Any) -> Any:
    match value:
        case dict():
            return {key: unmarked(inner) for key, inner in value.items() if key != "cache_control"}
        case list():
            return [unmarked(inner) for inner in value]
        case _:
            return value


def test_writing_to_the_cache_has_its_own_price() -> None:
    """Reading is cheaper than input, writing dearer."""
    prices = Prices(input=10.0, output=50.0, cached_input=1.0, cache_write=12.5)
    spent = Usage(1_000_000, 100_000, cached_tokens=500_000, cache_write_tokens=200_000)
    assert AnthropicMessages("m", prices=prices).priced(spent).cost == pytest.approx(0.5 + 2.5 + 3.0 + 5.0)
    assert Prices(input=10.0, output=0.0).priced(spent).cost == pytest.approx(10.0)


async def test_the_pause_is_told_before_the_next_request_is_sent() -> None:
    """So that whoever reads can stop there."""
    async with Emulator(PAUSED, say("never")) as emulator:
        model = connect(emulator)
        stream = model.generate(ASK)
        async for chunk in stream:
            if isinstance(chunk, PauseChunk):
                break
        await stream.aclose()
        assert len(emulator.exchanges) == 1
        await model.aclose()


async def test_unsigned_thoughts_of_a_cut_answer_stay_behind() -> None:
    """A stop within a thought leaves nothing that may be sent back (F25, F28)."""
    cut = Turn("model", (Thought(text="hal", provider="anthropic"),))
    async with Emulator(say("fine"), strict_unconfirmed=True) as emulator:
        model = connect(emulator)
        await ask(model, with_turns(cut, *ASK.turns))
        await model.aclose()
    assert [message["role"] for message in emulator.exchanges[0].body["messages"]] == ["user"]
