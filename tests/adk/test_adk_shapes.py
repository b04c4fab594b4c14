"""Histories of which google-adk alone makes requests that are rejected, or tell something untrue (S7 to S18)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from google.adk.events.event import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types
from tests.adk.world import CAN_ABORT, ScriptedLlm, World, accepted, agent, call, result, shape, turn

from heaveto.adk import ToolCallRepairPlugin

BEGIN = turn("user", types.Part(text="begin"))
WORDS = turn("user", types.Part(text="words"), invocation="e-2")


def model(*parts: types.Part, invocation: str = "e-1") -> Event:
    return turn("shop", *parts, invocation=invocation)


SHAPES: dict[str, tuple[list[Event], list[str]]] = {
    "S7: an id used again, the second call lost": (
        [BEGIN, model(call("a", "c1")), model(result("a", "c1", n=1)), WORDS, model(call("a", "c1"), invocation="e-2")],
        ["U:begin", "M:a()", "R:a={'n': 1}", "U:words", "M:a()", "R:a=unknown"],
    ),
    "S7b: an id used again, the first call lost": (
        [BEGIN, model(call("a", "c1")), WORDS, model(call("a", "c1"), invocation="e-2"), model(result("a", "c1", n=2))],
        ["U:begin", "M:a()", "R:a=unknown", "U:words", "M:a()", "R:a={'n': 2}"],
    ),
    "S8: an id twice in one message, both answered": (
        [BEGIN, model(call("a", "c1"), call("a", "c1")), model(result("a", "c1", n=1), result("a", "c1", n=2))],
        ["U:begin", "M:a() + M:a()", "R:a={'n': 1} + R:a={'n': 2}"],
    ),
    "S8: an id twice in one message, one answered": (
        [BEGIN, model(call("a", "c1"), call("a", "c1")), model(result("a", "c1", n=1))],
        ["U:begin", "M:a() + M:a()", "R:a={'n': 1} + R:a=unknown"],
    ),
    "S9: an id on one of two calls, the other lost": (
        [BEGIN, model(call("a", "c1"), call("b")), model(result("a", "c1", n=1))],
        ["U:begin", "M:a() + M:b()", "R:a={'n': 1} + R:b=unknown"],
    ),
    "S10: two calls of one name without ids, one answered": (
        [BEGIN, model(call("a"), call("a")), model(result("a", n=1))],
        ["U:begin", "M:a() + M:a()", "R:a={'n': 1} + R:a=unknown"],
    ),
    "S11: a result before its call": (
        [BEGIN, model(result("a", "c1", n=1)), model(call("a", "c1"))],
        ["U:begin", "M:a()", "R:a={'n': 1}"],
    ),
    "S15: a result with a wrong id, of the right name": (
        [BEGIN, model(call("a", "c1")), model(result("a", "c9", n=1))],
        ["U:begin", "M:a()", "R:a={'n': 1}"],
    ),
    "results of one message in another order": (
        [
            BEGIN,
            model(call("a", "adk-1"), call("a", "adk-2")),
            model(result("a", "adk-2", n=2), result("a", "adk-1", n=1)),
        ],
        ["U:begin", "M:a() + M:a()", "R:a={'n': 1} + R:a={'n': 2}"],
    ),
    "S18: two messages with calls, then both results": (
        [BEGIN, model(call("a", "c1")), model(call("b", "c2")), model(result("a", "c1", n=1), result("b", "c2", n=2))],
        ["U:begin", "M:a()", "R:a={'n': 1}", "M:b()", "R:b={'n': 2}"],
    ),
    "results of parallel calls of one name, one by one and the second first": (
        [
            BEGIN,
            model(call("a", "adk-1"), call("a", "adk-2")),
            model(result("a", "adk-2", n=2)),
            WORDS,
            model(result("a", "adk-1", n=1)),
            model(types.Part(text="Both."), invocation="e-2"),
        ],
        ["U:begin", "M:a() + M:a()", "R:a={'n': 1} + R:a={'n': 2}", "U:words", "M:Both."],
    ),
}


async def request_over(events: Sequence[Event], *plugins: BasePlugin) -> list[types.Content]:
    llm = ScriptedLlm.of("ok")
    world = World(agent(llm), *plugins)
    await world.stored(*(event.model_copy(deep=True) for event in events))
    before = await world.stored_bytes()
    await world.run("go on")
    assert (await world.stored_bytes())[: len(before)] == before
    return llm.requests[-1]


@pytest.mark.parametrize("case", SHAPES)
async def test_a_shape_becomes_whole_and_true(case: str) -> None:
    """Each call has its own result, in call order; what is not known is said."""
    events, expected = SHAPES[case]
    request = await request_over(events, ToolCallRepairPlugin())
    assert shape(request) == [*expected, "U:go on"]
    assert accepted(request)


@pytest.mark.skipif(not CAN_ABORT, reason="what older versions of google-adk do alone is another matter")
@pytest.mark.parametrize("case", SHAPES)
async def test_google_adk_alone_does_otherwise(case: str) -> None:
    """Each case is here because the request is a different one without the plugin."""
    events, _ = SHAPES[case]
    told = await request_over(events, ToolCallRepairPlugin())
    assert await request_over(events) != told
