"""A call that a stop, a crash or an abort left without a result: the model is told; google-adk alone keeps silent."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from tests.adk.world import (
    CAN_ABORT,
    Gate,
    ScriptedLlm,
    World,
    accepted,
    agent,
    call,
    has_call,
    next_request,
    result,
    shape,
    turn,
)

from heaveto.adk import ToolCallRepairPlugin, repair_tool_calls_before_model

TOLD = ["U:pay 3", "M:pay()", "R:pay=unknown", "U:go on"]


async def pay(amount: int) -> dict[str, int]:
    """Pays."""
    return {"paid": amount}


async def fee(amount: int) -> dict[str, int]:
    """Tells the fee."""
    return {"fee": amount}


async def closed_behind_the_call(*plugins: BasePlugin) -> list[types.Content]:
    """A reader closes the stream behind the call; the next turn comes. Return its request."""
    llm = ScriptedLlm.of([call("pay", amount=3)], "Paid?")
    world = World(agent(llm, pay), *plugins)
    await world.run("pay 3", until=has_call)
    before = await world.stored_bytes()
    await world.run("go on")
    assert (await world.stored_bytes())[: len(before)] == before
    return llm.requests[-1]


async def test_a_call_whose_stream_was_closed_is_told() -> None:
    """The call and a result that says it was interrupted stand where the call was made (S1); the log stays."""
    request = await closed_behind_the_call(ToolCallRepairPlugin())
    assert shape(request) == TOLD
    assert accepted(request)


async def test_google_adk_alone_does_not_tell() -> None:
    """Without the plugin the model hears of no call, or gets one without a result: the reason for all of this."""
    request = await closed_behind_the_call()
    assert shape(request) == ["U:pay 3", "U:go on"] or not accepted(request)


async def test_a_call_whose_task_was_cancelled_is_told() -> None:
    """The tool is being executed when the task around the run is cancelled."""
    gate = Gate()
    llm = ScriptedLlm.of([call("pay", amount=3)], "Paid?")
    world = World(agent(llm, gate.tool), ToolCallRepairPlugin())
    task = asyncio.create_task(world.run("pay 3"))
    await gate.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    before = await world.stored_bytes()
    await world.run("go on")
    assert shape(llm.requests[-1]) == TOLD
    assert gate.times == 1
    assert (await world.stored_bytes())[: len(before)] == before


@pytest.mark.skipif(not CAN_ABORT, reason="this google-adk has no abort_signal")
async def test_what_an_abort_recorded_is_told_as_it_is() -> None:
    """google-adk seals an aborted run itself; its results are real ones, and nothing is added (A10)."""
    gate = Gate()
    llm = ScriptedLlm.of([call("pay", amount=3), call("fee", amount=3)], "Paid?")
    world = World(agent(llm, gate.tool, fee), ToolCallRepairPlugin())
    signal = asyncio.Event()
    task = asyncio.create_task(world.run("pay 3", abort_signal=signal))
    await gate.entered.wait()
    signal.set()
    await task
    before = await world.stored_bytes()
    await world.run("go on")
    aborted = "{'error': 'Invocation was aborted by client.'}"
    assert shape(llm.requests[-1]) == [
        "U:pay 3",
        "M:pay() + M:fee()",
        f"R:pay={aborted} + R:fee={aborted}",
        "U:go on",
    ]
    assert (await world.stored_bytes())[: len(before)] == before


CRASH = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from tests.adk.world import ScriptedLlm, World, agent, call

async def pay(amount: int) -> dict:
    "Pays."
    os._exit(7)

world = World(agent(ScriptedLlm.of([call("pay", amount=3)]), pay), service=SqliteSessionService(sys.argv[1]))
asyncio.run(world.run("pay 3"))
"""


async def test_a_call_whose_process_died_is_told_in_the_next_process(tmp_path: Path) -> None:
    """The process dies within the tool; a new one reads the session from its file."""
    file = str(tmp_path / "sessions.db")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    root = Path(__file__).parents[2]
    died = await asyncio.create_subprocess_exec(sys.executable, "-c", CRASH, file, cwd=root, env=environment)
    assert await died.wait() == 7

    llm = ScriptedLlm.of("Paid?")
    world = World(agent(llm, pay), ToolCallRepairPlugin(), service=SqliteSessionService(file))
    before = await world.stored_bytes()
    await world.run("go on")
    assert shape(llm.requests[-1]) == TOLD
    assert (await world.stored_bytes())[: len(before)] == before


async def test_parallel_calls_stay_together_and_in_call_order() -> None:
    """One of two calls of one message has its result: the other's comes into the same content, at its place (S2)."""
    llm = ScriptedLlm.of("ok")
    world = World(agent(llm, pay, fee), ToolCallRepairPlugin())
    await world.stored(
        turn("user", types.Part(text="pay 3")),
        turn("shop", call("pay", "adk-1", b"signed", amount=3), call("fee", "adk-2", amount=3)),
        turn("shop", result("fee", "adk-2", fee=3)),
    )
    request = await next_request(world, llm)
    assert shape(request) == [
        "U:pay 3",
        "M:pay() + M:fee()",
        "R:pay=unknown + R:fee={'fee': 3}",
        "U:go on",
    ]
    assert (request[1].parts or [])[0].thought_signature == b"signed"


async def test_the_second_time_changes_nothing() -> None:
    """Plugin and callback on the same request tell once (idempotent); the same session gives the same request."""
    requests: list[list[types.Content]] = []
    for options in ({}, {"before_model_callback": repair_tool_calls_before_model}):
        llm = ScriptedLlm.of("ok")
        world = World(agent(llm, pay, fee, **options), ToolCallRepairPlugin())
        await world.stored(
            turn("user", types.Part(text="pay 3")),
            turn("shop", call("pay", "adk-1", b"signed", amount=3), call("fee", "adk-2", amount=3)),
            turn("shop", result("fee", "adk-2", fee=3)),
            turn("user", types.Part(text="again"), invocation="e-2"),
            turn("shop", types.Part(text="Once more."), call("pay", "adk-3", amount=3), invocation="e-2"),
        )
        requests.append(await next_request(world, llm))
    assert requests[0] == requests[1]
    assert shape(requests[0])[3:] == ["U:again", "M:Once more. + M:pay()", "R:pay=unknown", "U:go on"]


async def test_as_a_callback_of_one_agent() -> None:
    """The callback alone does what the plugin does."""
    llm = ScriptedLlm.of([call("pay", amount=3)], "Paid?")
    world = World(agent(llm, pay, before_model_callback=repair_tool_calls_before_model))
    await world.run("pay 3", until=has_call)
    await world.run("go on")
    assert shape(llm.requests[-1]) == TOLD


async def test_a_later_turn_hears_it_the_same_way() -> None:
    """What was told once is the beginning of every later request, so that a prompt cache holds."""
    llm = ScriptedLlm.of([call("pay", amount=3)], "Paid?", [call("fee", amount=1)], "Done.")
    world = World(agent(llm, pay, fee), ToolCallRepairPlugin())
    await world.run("pay 3", until=has_call)
    await world.run("go on")
    await world.run("and the fee")
    _, second, third, fourth = llm.requests
    assert shape(second) == TOLD
    assert third[: len(second)] == second
    assert fourth[: len(third)] == third


async def test_a_session_without_lost_calls_is_left_alone() -> None:
    """The request is the one that google-adk makes alone."""
    requests: list[list[types.Content]] = []
    for plugins in ([ToolCallRepairPlugin()], []):
        llm = ScriptedLlm.of([call("pay", "call_1", amount=3), call("fee", "call_2", amount=3)], "Paid.", "Bye.")
        world = World(agent(llm, pay, fee), *plugins)
        await world.run("pay 3")
        await world.run("thanks")
        requests.append(llm.requests[-1])
    assert requests[0] == requests[1]


async def test_a_rewound_call_is_not_told() -> None:
    """What a rewind took back is gone for the model, with its calls."""
    llm = ScriptedLlm.of([call("pay", amount=3)], "Hello.")
    world = World(agent(llm, pay), ToolCallRepairPlugin())
    events = await world.run("pay 3", until=has_call)
    await world.rewind(before=events[0].invocation_id)
    await world.run("hello")
    assert shape(llm.requests[-1]) == ["U:hello"]
