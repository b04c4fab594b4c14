"""The emulated OpenAI Responses, read by OpenAI's own SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from heaveto.events.contents import Opaque
from heaveto.testing import Emulator, call, cut, fault, finish, gate, give, hang, say, think, usage

MODEL = "gpt-any"
TURN = (
    think("Let me see.", chunks=2),
    say("Both: ", chunks=2),
    call("a", x=1),
    call("b"),
    usage(30, 12, cached_tokens=10, reasoning_tokens=4),
)


def client(emulator: Emulator) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=emulator.openai_url, api_key="any", max_retries=0)


async def whole(api: AsyncOpenAI, stream: bool, **asked: Any) -> Response:
    asked = {"model": MODEL, "input": "hi", **asked}
    if not stream:
        return await api.responses.create(**asked)
    async with api.responses.stream(**asked) as events:
        return await events.get_final_response()


async def ended(api: AsyncOpenAI, stream: bool) -> Response:
    """The response, in whatever way it ended: the SDK's helper wants a completed one."""
    if not stream:
        return await whole(api, stream)
    last = [event async for event in await api.responses.create(model=MODEL, input="hi", stream=True)][-1]
    return last.response  # type: ignore[union-attr]


def output(call_id: str, text: str = "1") -> dict[str, str]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_of_all_kinds_is_read_by_the_sdk(stream: bool) -> None:
    """Streamed and whole, the SDK builds the same typed response."""
    async with Emulator(TURN) as emulator, client(emulator) as api:
        response = await whole(api, stream, include=["reasoning.encrypted_content"])
        emulator.assert_done()
    thought, text, first, second = response.output
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    assert (thought.summary[0].text, bool(thought.encrypted_content)) == ("Let me see.", True)  # type: ignore[union-attr]
    assert (response.output_text, text.status) == ("Both: ", "completed")  # type: ignore[union-attr]
    assert (first.id, first.call_id, first.name, first.arguments) == ("fc_1_3", "call_1", "a", '{"x":1}')  # type: ignore[union-attr]
    assert (second.call_id, second.arguments) == ("call_2", "{}")  # type: ignore[union-attr]
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    spent = response.usage
    assert spent is not None
    assert (spent.input_tokens, spent.output_tokens, spent.total_tokens) == (30, 12, 42)
    assert (spent.input_tokens_details.cached_tokens, spent.output_tokens_details.reasoning_tokens) == (10, 4)


async def test_the_events_come_in_openais_order_and_are_numbered() -> None:
    """Each item is added, grows and is done."""
    async with Emulator((think("Hm."), say("Hi"), call("a", x=1))) as emulator, client(emulator) as api:
        events = [event async for event in await api.responses.create(model=MODEL, input="hi", stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type.removeprefix("response.") for event in events] == [
        "created", "in_progress",
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
async def test_a_limit_makes_it_incomplete(stream: bool) -> None:
    """The item that was cut says so too (F30)."""
    steps = ((say("So"), finish("length")), (say("So"), finish("content_filter")))
    async with Emulator(*steps) as emulator, client(emulator) as api:
        response, filtered = await ended(api, stream), await ended(api, stream)
    assert (response.status, response.output[0].status) == ("incomplete", "incomplete")  # type: ignore[union-attr]
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert filtered.incomplete_details is not None
    assert filtered.incomplete_details.reason == "content_filter"


async def test_given_items_are_sent_verbatim() -> None:
    """What a part carries of OpenAI's own is what the SDK gets, its text as deltas too."""
    items: list[dict[str, Any]] = [
        {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"id": "rs_1", "type": "reasoning", "encrypted_content": "eA==",
         "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "phase": "commentary",
         "content": [{"type": "output_text", "text": "Hi", "annotations": []}]},
    ]  # fmt: skip
    parts = [give(Opaque(provider="openai-responses", data=item)) for item in items]
    async with Emulator(parts, strict=False) as emulator, client(emulator) as api:
        response = await whole(api, stream=True)
        assert [item.to_dict(exclude_unset=True) for item in (await whole(api, stream=False)).output] == items
        kinds = [event.type async for event in await api.responses.create(model=MODEL, input="x", stream=True)]
    assert [item.id for item in response.output] == ["ws_1", "rs_1", "msg_1"]
    assert "response.output_text.delta" in kinds and "response.reasoning_summary_text.delta" in kinds


async def test_faults() -> None:
    """Before the answer an HTTP error; within it an error event, then the failed response (F63)."""
    slow = fault("slow down", status=429, retry_after_seconds=3)
    steps = (slow, (say("He"), fault("gone", status=500)), finish("failed"))
    async with Emulator(*steps) as emulator, client(emulator) as api:
        with pytest.raises(openai.RateLimitError) as caught:
            await whole(api, stream=True)
        events = [event async for event in await api.responses.create(model=MODEL, input="hi", stream=True)]
        failed = await whole(api, stream=False)
    assert (caught.value.code, caught.value.response.headers["retry-after"]) == ("rate_limit_exceeded", "3")
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2].message == "gone"  # type: ignore[union-attr]
    assert (failed.status, failed.error and failed.error.code) == ("failed", "server_error")


async def test_a_conversation_goes_on_behind_a_response() -> None:
    """The whole chain is judged: what it called must be answered, once, and is not sent again (R1, R3, R7)."""
    async with Emulator(call("a", x=1), say("One.")) as emulator, client(emulator) as api:
        first = await whole(api, stream=True)
        for sent, words in (
            ("and?", "No tool output found for function call call_1"),
            ([first.output[0].to_dict(), output("call_1")], "Duplicate item found with id fc_1_1"),
            ([output("call_1"), output("call_9")], "No tool call found for function call output with call_id call_9"),
        ):
            with pytest.raises(openai.BadRequestError, match=words):
                await whole(api, stream=False, input=sent, previous_response_id=first.id)
        second = await whole(api, stream=False, input=[output("call_1")], previous_response_id=first.id)
        assert (second.output_text, second.previous_response_id) == ("One.", first.id)
        items = await api.responses.input_items.list(second.id)
        assert [item.type for item in items.data] == ["function_call_output"]
        rules = [exchange.violation and exchange.violation.rule for exchange in emulator.exchanges]
        assert rules == [None, "R1", "R7", "R3", None]


async def test_what_was_not_finished_or_not_stored_is_not_there() -> None:
    """An answer that its client gave up is not kept; nor one that was asked not to be (R12, F51)."""
    async with Emulator((say("He"), hang()), say("x"), say("y")) as emulator, client(emulator) as api:
        async with await api.responses.create(model=MODEL, input="hi", stream=True) as events:
            created = await anext(aiter(events))
        exchange = await emulator.exchange(0)
        async with asyncio.timeout(2):
            await exchange.over()
        unstored = await whole(api, stream=True, store=False)
        for lost in (created.response.id, unstored.id, "resp_nobody"):  # type: ignore[union-attr]
            with pytest.raises(openai.BadRequestError, match=f"Previous response with id '{lost}' not found"):
                await whole(api, stream=False, previous_response_id=lost)
            with pytest.raises(openai.NotFoundError):
                await api.responses.retrieve(lost)
        item = {"type": "item_reference", "id": unstored.output[0].id}
        with pytest.raises(openai.NotFoundError, match="Items are not persisted"):
            await whole(api, stream=False, input=[item])


async def test_responses_are_read_referred_to_and_deleted() -> None:
    """A stored response is there until it is deleted; its items can be referred to."""
    async with Emulator(say("x"), say("y")) as emulator, client(emulator) as api:
        first = await whole(api, stream=False)
        assert (await api.responses.retrieve(first.id)).to_dict() == first.to_dict()
        refer: dict[str, Any] = {"type": "item_reference", "id": first.output[0].id}
        await whole(api, stream=False, input=[refer, {"role": "user", "content": "and?"}])
        with pytest.raises(openai.BadRequestError, match="synchronous"):
            await api.responses.cancel(first.id)
        await api.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            await api.responses.retrieve(first.id)
        assert (await api.responses.input_tokens.count(model=MODEL, input="hello there")).input_tokens > 5


async def test_conversations_keep_their_items() -> None:
    """Input and output of each response are added, and judged as a whole with the next one."""
    async with Emulator(call("a"), say("Done.")) as emulator, client(emulator) as api:
        conversation = await api.conversations.create(
            items=[{"type": "message", "role": "user", "content": "Be kind."}]
        )
        await whole(api, stream=True, conversation=conversation.id)
        with pytest.raises(openai.BadRequestError, match="No tool output found"):
            await whole(api, stream=False, conversation=conversation.id)
        await whole(api, stream=False, input=[output("call_1")], conversation=conversation.id)
        items = [item.type async for item in api.conversations.items.list(conversation.id, order="asc")]
        assert items == ["message", "message", "function_call", "function_call_output", "message"]
        assert (await api.conversations.retrieve(conversation.id)).id == conversation.id
        assert (await api.conversations.delete(conversation.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await whole(api, stream=False, conversation=conversation.id)


async def test_a_background_response_goes_on_without_its_client() -> None:
    """It is polled, followed from any event on, and goes on when the stream is left."""
    door = gate()
    async with Emulator((say("He"), door, say("llo"))) as emulator, client(emulator) as api:
        async with await api.responses.create(model=MODEL, input="hi", background=True, stream=True) as events:
            async for event in events:
                if event.type == "response.output_text.delta":
                    break
        name = "resp_1"
        assert (await api.responses.retrieve(name)).status == "in_progress"
        with pytest.raises(openai.BadRequestError, match="not found"):
            await whole(api, stream=False, previous_response_id=name)
        door.open()
        rest = [
            event
            async for event in await api.responses.retrieve(name, stream=True, starting_after=event.sequence_number)
        ]
        assert rest[0].sequence_number == event.sequence_number + 1
        assert rest[-1].type == "response.completed"
        assert (await api.responses.retrieve(name)).output_text == "Hello"


async def test_a_background_response_is_cancelled() -> None:
    """Twice is harmless, and what was said so far stays to be read."""
    async with Emulator((say("He"), hang())) as emulator, client(emulator) as api:
        queued = await whole(api, stream=False, background=True)
        assert queued.status == "queued"
        for _ in range(2):
            assert (await api.responses.cancel(queued.id)).status == "cancelled"
        assert (await api.responses.retrieve(queued.id)).status == "cancelled"


async def test_a_background_response_outlives_a_broken_connection() -> None:
    """A stream that breaks at a byte is followed again from where it broke."""
    async with Emulator((say("Hello", chunks=5), cut(after_bytes=2500))) as emulator, client(emulator) as api:
        seen = []
        with pytest.raises(openai.APIConnectionError):
            async for event in await api.responses.create(model=MODEL, input="hi", background=True, stream=True):
                seen.append(event)
        last = seen[-1].sequence_number
        seen += [event async for event in await api.responses.retrieve("resp_1", stream=True, starting_after=last)]
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == "Hello"


async def test_a_background_response_fails() -> None:
    """A fault of any kind is told as a failed response: there is no connection that it could break."""
    async with Emulator(fault("gone", status=500)) as emulator, client(emulator) as api:
        queued = await whole(api, stream=False, background=True)
        events = [event async for event in await api.responses.retrieve(queued.id, stream=True)]
        assert events[-1].type == "response.failed"
        assert (await api.responses.retrieve(queued.id)).status == "failed"


async def test_unknown_models_and_paths() -> None:
    """The 404s of OpenAI."""
    async with Emulator(say("x"), models=["gpt-a"]) as emulator, client(emulator) as api:
        assert [model.id async for model in api.models.list()] == ["gpt-a"]
        with pytest.raises(openai.NotFoundError) as caught:
            await whole(api, stream=False)
        assert caught.value.code == "model_not_found"
        with pytest.raises(openai.NotFoundError, match=r"Invalid URL \(POST /v1/nothing\)"):
            await api.post("/nothing", cast_to=object, body={})
