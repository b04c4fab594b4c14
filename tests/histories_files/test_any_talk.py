"""Any talk in any transcript: results missing, late, early, doubled, of nobody's; and the lines damaged besides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.histories_files.transcripts import CHAT, KINDS, Event, Transcript, paired_up

from heaveto.histories.files import repair_file

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@st.composite
def talks(draw: st.DrawFn) -> tuple[Event, ...]:
    """Begins with the user, and calls have ids that differ; what becomes of the results is up to chance."""
    events: list[Event] = [("user", "begin")]
    calls: list[str] = []
    for number in range(draw(st.integers(0, 12))):
        match draw(st.sampled_from(["user", "say", "call", "call", "result", "result", "stray"])):
            case "call":
                calls.append(f"call_{number}")
                events.append(("call", calls[-1]))
            case "result" if calls:
                events.append(("result", draw(st.sampled_from(calls))))
            case "stray":
                events.append(("result", f"stray_{number}"))
            case "say":
                events.append(("say", f"said {number}"))
            case _:
                events.append(("user", f"asked {number}"))
    return tuple(events)


def said(events: list[Event]) -> list[Event]:
    return [event for event in events if event[0] in ("user", "say")]


@kinds
@given(talk=talks())
def test_any_talk_is_put_in_order(kind: Transcript, talk: tuple[Event, ...]) -> None:
    """Each call has its one result, all words are there in their order, and a second repair has nothing to do."""
    data = kind.write(talk)
    found = repair_file(data)
    events = kind.events(found.output)
    assert paired_up(events, adjacent=kind.adjacent), events
    assert said(events) == said(list(talk))
    assert {what for kind_, what in events if kind_ == "call"} == {what for kind_, what in talk if kind_ == "call"}
    assert found.refused == () and found.problems == ()
    again = repair_file(found.output)
    assert again.output is found.output, again
    assert not again.is_broken


@kinds
@given(talk=talks(), data=st.data())
def test_any_talk_with_a_line_lost_can_be_loaded(
    kind: Transcript, talk: tuple[Event, ...], data: st.DataObject
) -> None:
    """One line is garbage: what is left is in order, and nothing else that was said is gone."""
    lines = kind.write(talk).splitlines(keepends=True)
    gone = data.draw(st.integers(1 if kind is not CHAT else 0, len(lines) - 1))
    found = repair_file(b"".join([*lines[:gone], b"\0garbage\n", *lines[gone + 1 :]]))
    if b'"role"' not in found.output:
        return  # the only message was the one that was lost
    events = kind.events(found.output)
    assert paired_up(events, adjacent=kind.adjacent), events
    assert len(said(events)) >= len(said(list(talk))) - 1
    assert not repair_file(found.output).is_broken
