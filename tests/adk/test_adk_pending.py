"""Calls that still wait for someone are told as pending, never as failed; answers that came are told as they are."""

from __future__ import annotations

from typing import Any

from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types
from tests.adk.world import ScriptedLlm, World, accepted, agent, call, next_request, result, shape, turn

from heaveto.adk import ToolCallRepairPlugin


def approve(what: str) -> dict[str, Any] | None:
    """Asks the boss; the answer comes later."""


def book(what: str) -> dict[str, Any]:
    """Books."""
    return {"booked": what}


async def asked_about_while_waiting(*plugins: BasePlugin, is_resumable: bool = False) -> list[types.Content]:
    """A long-running call waits, and the user asks something else. Return the request of that turn."""
    llm = ScriptedLlm.of([call("approve", what="trip")], "I wait.", "Not yet.")
    world = World(agent(llm, LongRunningFunctionTool(approve)), *plugins, is_resumable=is_resumable)
    await world.run("approve the trip")
    before = await world.stored_bytes()
    await world.run("how long?")
    assert (await world.stored_bytes())[: len(before)] == before
    return llm.requests[-1]


async def test_a_long_running_call_without_an_answer_is_pending() -> None:
    """The user writes while a long-running call waits (S13): no failure is told, and the request is whole."""
    request = await asked_about_while_waiting(ToolCallRepairPlugin())
    assert shape(request) == ["U:approve the trip", "M:approve()", "R:approve=pending", "U:how long?"]
    assert accepted(request)


async def test_google_adk_alone_sends_it_without_a_result() -> None:
    """Which Gemini rejects: it is not only about what is told."""
    assert not accepted(await asked_about_while_waiting())


async def test_in_a_resumable_app_too() -> None:
    """The run was paused; a message beside it hears that the call is pending."""
    request = await asked_about_while_waiting(ToolCallRepairPlugin(), is_resumable=True)
    assert shape(request)[:3] == ["U:approve the trip", "M:approve()", "R:approve=pending"]
    assert accepted(request)


async def test_the_answer_takes_the_place_of_the_pending_text() -> None:
    """When the answer is there, the model hears it and nothing else of that call."""
    llm = ScriptedLlm.of([call("approve", what="trip")], "Approved.", "Bye.")
    world = World(agent(llm, LongRunningFunctionTool(approve)), ToolCallRepairPlugin(), is_resumable=True)
    (asked,) = [c for event in await world.run("approve the trip") for c in event.get_function_calls()]
    await world.run(types.Content(role="user", parts=[result("approve", asked.id, approved=True)]))
    await world.run("thanks")
    answered = ["U:approve the trip", "M:approve()", "R:approve={'approved': True}"]
    assert [shape(r) for r in llm.requests[1:]] == [answered, [*answered, "M:Approved.", "U:thanks"]]


async def test_an_answer_beside_an_open_sibling_keeps_call_order() -> None:
    """Two calls of one name wait, the second is answered: google-adk strips their ids, so only order tells which."""
    llm = ScriptedLlm.of("One is approved.")
    world = World(agent(llm, LongRunningFunctionTool(approve)), ToolCallRepairPlugin())
    await world.stored(
        turn("user", types.Part(text="approve both")),
        turn(
            "shop",
            call("approve", "adk-1", what="trip"),
            call("approve", "adk-2", what="hotel"),
            long_running_tool_ids={"adk-1", "adk-2"},
        ),
    )
    await world.run(types.Content(role="user", parts=[result("approve", "adk-2", approved=True)]))
    assert shape(llm.requests[-1]) == [
        "U:approve both",
        "M:approve() + M:approve()",
        "R:approve=pending + R:approve={'approved': True}",
    ]


async def test_a_call_that_waits_for_a_confirmation() -> None:
    """What google-adk recorded for it stands; the request for the confirmation itself is never shown to the model."""
    llm = ScriptedLlm.of([call("book", what="trip")], "Please confirm first.")
    world = World(agent(llm, FunctionTool(book, require_confirmation=True)), ToolCallRepairPlugin())
    await world.run("book the trip")
    request = await next_request(world, llm, "what is it?")
    assert [line.split("=")[0] for line in shape(request)] == ["U:book the trip", "M:book()", "R:book", "U:what is it?"]
    assert "confirmation" in shape(request)[2] and "unknown" not in shape(request)[2]


async def test_a_call_cut_off_while_its_confirmation_is_asked_for_is_pending() -> None:
    """The process died between the request for a confirmation and the result that says so."""
    llm = ScriptedLlm.of("Please confirm first.")
    world = World(agent(llm, FunctionTool(book, require_confirmation=True)), ToolCallRepairPlugin())
    original = {"id": "adk-1", "name": "book", "args": {"what": "trip"}}
    await world.stored(
        turn("user", types.Part(text="book the trip")),
        turn("shop", call("book", "adk-1", what="trip")),
        turn(
            "shop",
            call("adk_request_confirmation", "adk-2", originalFunctionCall=original, toolConfirmation={}),
            long_running_tool_ids={"adk-2"},
        ),
    )
    request = await next_request(world, llm)
    assert shape(request) == ["U:book the trip", "M:book()", "R:book=pending", "U:go on"]


async def test_a_form_that_was_not_filled_in_is_pending() -> None:
    """The user writes instead of filling in a form. Old versions hide such a call like a confirmation."""
    llm = ScriptedLlm.of("I need your name.")
    world = World(agent(llm), ToolCallRepairPlugin())
    await world.stored(
        turn("user", types.Part(text="register me")),
        turn("shop", call("adk_request_input", "adk-1", message="Name?"), long_running_tool_ids={"adk-1"}),
    )
    request = await next_request(world, llm, "why?")
    shown = ["M:adk_request_input()", "R:adk_request_input=pending"]
    assert shape(request) in (["U:register me", *shown, "U:why?"], ["U:register me", "U:why?"])
