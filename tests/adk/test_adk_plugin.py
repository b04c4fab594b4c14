"""The plugin's options, its place among other plugins, and what is reported."""

from __future__ import annotations

import logging
import sys

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.genai import types
from tests.adk.world import ScriptedLlm, World, accepted, agent, call, next_request, result, shape, turn

from heaveto import adk
from heaveto.adk import ToolCallRepairPlugin
from heaveto.core.repair import RepairReport
from heaveto.errors import MissingExtraError

LOST = (turn("user", types.Part(text="pay 3")), turn("shop", call("pay", "call_1", amount=3)))


async def lost_call(*plugins: object) -> tuple[World, ScriptedLlm]:
    llm = ScriptedLlm.of("ok", "ok")
    world = World(agent(llm), *plugins)  # type: ignore[arg-type]
    await world.stored(*(event.model_copy(deep=True) for event in LOST))
    return world, llm


async def test_other_words_are_told() -> None:
    """`texts` replaces what is said by why there is no result; the status stays."""
    world, llm = await lost_call(ToolCallRepairPlugin(texts={"unknown": "Look at the account first."}))
    request = await next_request(world, llm)
    told = (request[2].parts or [])[0].function_response
    assert told is not None and told.response == {"status": "unknown", "error": "Look at the account first."}


async def test_each_changed_request_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The report names the call and the event it stands in; a request that is not changed has none."""
    reports: list[RepairReport] = []
    world, llm = await lost_call(ToolCallRepairPlugin(on_report=reports.append))
    with caplog.at_level(logging.INFO, "heaveto.adk"):
        await next_request(world, llm)
    (report,) = reports
    (change,) = report.changes
    assert (change.action, change.call_id, change.name, change.index) == ("answered", "call_1", "pay", 1)
    assert [record.message for record in caplog.records if record.name == "heaveto.adk"] == [
        "request of agent shop: S1 at 1: answered pay call_1 (unknown)"
    ]

    healthy = ScriptedLlm.of("hi")
    await World(agent(healthy), ToolCallRepairPlugin(on_report=reports.append)).run("hello")
    assert len(reports) == 1


async def test_a_call_at_the_beginning_of_a_trimmed_history() -> None:
    """Another plugin keeps the newest contents only, and the first of them is a call (S17)."""
    trim = ContextFilterPlugin(custom_filter=lambda contents: list(contents)[1:])
    llm = ScriptedLlm.of("ok")
    world = World(agent(llm), trim, ToolCallRepairPlugin())
    await world.stored(*LOST[:1], turn("shop", call("pay", "call_1")), turn("shop", result("pay", "call_1", paid=3)))
    request = await next_request(world, llm)
    assert shape(request)[1:] == ["M:pay()", "R:pay={'paid': 3}", "U:go on"]


async def test_a_plugin_that_trims_behind_it_gets_whole_turns() -> None:
    """Placed first, it leaves what google-adk's own filter can cut between invocations."""
    world, llm = await lost_call(ToolCallRepairPlugin(), ContextFilterPlugin(num_invocations_to_keep=1))
    await next_request(world, llm)
    request = await next_request(world, llm, "and now?")
    assert accepted(request) and shape(request) == ["U:and now?"]


async def test_where_a_summary_stands_for_the_conversation_it_is_told_in_words() -> None:
    """The call's place is gone: a note beside the user's newest words says what is known."""
    summary = types.Content(role="user", parts=[types.Part(text="Summary: they talked.")])
    summarise = ContextFilterPlugin(custom_filter=lambda contents: [summary])
    world, llm = await lost_call(summarise, ToolCallRepairPlugin())
    (content,) = await next_request(world, llm)
    words, note = [part.text or "" for part in content.parts or ()]
    assert words == "Summary: they talked."
    assert 'pay({"amount": 3})' in note and "unknown" in note


def test_without_google_adk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module can be imported without it; a name of it cannot."""
    for name in [name for name in sys.modules if name.startswith("heaveto.adk.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google.adk.agents.callback_context", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'heaveto\[adk\]'"):
        _ = adk.ToolCallRepairPlugin
    with pytest.raises(AttributeError):
        _ = adk.Nonsense


async def test_a_call_that_google_adk_has_summarised_stays_in_the_summary() -> None:
    """Its events are not in the request any more; what was lost later is told."""
    summary = types.Content(role="model", parts=[types.Part(text="Summary: they paid once.")])
    compaction = EventCompaction(start_timestamp=1.0, end_timestamp=2.0, compacted_content=summary)
    llm = ScriptedLlm.of("ok")
    world = World(agent(llm), ToolCallRepairPlugin())
    await world.stored(
        turn("user", types.Part(text="pay 3"), timestamp=1.0),
        turn("shop", call("pay", "call_1", amount=3), timestamp=2.0),
        Event(author="user", invocation_id="e-2", timestamp=3.0, actions=EventActions(compaction=compaction)),
        turn("user", types.Part(text="pay 4"), invocation="e-3", timestamp=4.0),
        turn("shop", call("pay", "call_2", amount=4), invocation="e-3", timestamp=5.0),
    )
    request = await next_request(world, llm)
    told, *others = shape(request)
    assert "Summary: they paid once." in told
    assert others == ["U:pay 4", "M:pay()", "R:pay=unknown", "U:go on"]


async def test_an_agent_without_history_hears_of_its_turn_only() -> None:
    """With ``include_contents="none"`` earlier turns are not for it, nor the calls lost in them."""
    llm = ScriptedLlm.of("ok")
    world = World(agent(llm, include_contents="none"), ToolCallRepairPlugin())
    await world.stored(*LOST)
    assert shape(await next_request(world, llm)) == ["U:go on"]
