"""Whatever stands in a session: the request is whole, and nothing real is lost or given to another call."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from google.adk.events.event import Event
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.adk.world import ScriptedLlm, World, accepted, agent, call, result, turn
from tests.effort import examples

from heaveto.adk import ToolCallRepairPlugin, repair_tool_calls_before_model
from heaveto.adk.calls import bound

IDS = st.sampled_from(["adk-1", "adk-2", "c1", "c2", None])
NAMES = st.sampled_from(["a", "b"])


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Events of one agent: words, calls and results, paired and broken in any way; each call and result is unique."""
    count = iter(range(1_000))
    calls = st.builds(lambda name, id: call(name, id, n=next(count)), NAMES, IDS)
    results = st.builds(lambda name, id: result(name, id, n=next(count)), NAMES, IDS)
    events = st.one_of(
        st.builds(lambda: turn("user", types.Part(text=f"words {next(count)}"))),
        st.builds(lambda: turn("shop", types.Part(text=f"answer {next(count)}"))),
        st.lists(calls, min_size=1, max_size=3).map(lambda parts: turn("shop", *parts)),
        st.lists(results, min_size=1, max_size=3).map(lambda parts: turn("shop", *parts)),
    )
    return [turn("user", types.Part(text="begin")), *draw(st.lists(events, max_size=8))]


async def requests_over(events: Sequence[Event]) -> list[types.Content]:
    requests: list[list[types.Content]] = []
    for options in ({}, {"before_model_callback": repair_tool_calls_before_model}):
        llm = ScriptedLlm.of("ok")
        world = World(agent(llm, **options), ToolCallRepairPlugin())
        await world.stored(*(event.model_copy(deep=True) for event in events))
        before = await world.stored_bytes()
        await world.run("go on")
        assert (await world.stored_bytes())[: len(before)] == before
        requests.append(llm.requests[0])
    assert requests[0] == requests[1]
    return requests[0]


def pairs(contents: Sequence[types.Content]) -> dict[int, dict[str, object]]:
    """Return what each call, by its number, was answered with: providers pair results in order."""
    found: dict[int, dict[str, object]] = {}
    for asked, answered in pairwise(contents):
        calls = [part.function_call for part in asked.parts or () if part.function_call]
        results = [part.function_response for part in answered.parts or () if part.function_response]
        for one, other in zip(calls, results, strict=False):
            found[(one.args or {})["n"]] = dict(other.response or {})
    return found


def texts(content: types.Content | None) -> list[str]:
    return [part.text for part in (content.parts if content else None) or () if part.text]


@settings(max_examples=examples(50))
@given(histories())
def test_any_history(events: list[Event]) -> None:
    """Every call is there with the result that belongs to it, or is told as unknown; the user's words stay.

    Words of the model between two results of one call may go: google-adk takes them for talk about progress.
    """
    request = asyncio.run(requests_over(events))
    assert accepted(request)
    expected: dict[int, dict[str, object]] = {}
    for turns in bound(events).turns:
        for slot in turns.slots:
            index, place = slot.call.place
            asked = ((events[index].content or types.Content()).parts or [])[place].function_call
            assert asked is not None
            expected[(asked.args or {})["n"]] = slot.result.value if slot.result else {"status": "unknown"}  # type: ignore[assignment]
    told = pairs(request)
    assert {
        number: answer if "n" in answer else {"status": answer["status"]} for number, answer in told.items()
    } == expected
    spoken = Counter(text for event in events if event.author == "user" for text in texts(event.content))
    assert spoken <= Counter(text for content in request for text in texts(content))
