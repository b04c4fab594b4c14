"""Going back: to which points, and what remains in the world."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.judge import breach_of
from tests.core.logs import Log, all_text, call
from tests.core.strategies import FAMILIES, grammatical_logs, wild_logs

from heaveto.core.fold import effective, fold
from heaveto.core.project import project
from heaveto.core.request import ModelProfile
from heaveto.core.rewind import check_point, not_undone, rewind_points
from heaveto.errors import RewindPointError
from heaveto.events.contents import Content
from heaveto.events.records import CallStarted, Compacted, Record, Rewound, RunStarted, StateChanged, WaitingCall


def two_runs() -> Log:
    log = Log()
    for run_id in ("r1", "r2"):
        log.run(run_id, f"ask {run_id}")
        log.say(run_id, f"answer {run_id}")
        log.end(run_id)
    return log


def test_a_point_is_where_no_run_is_open() -> None:
    """The beginning, and behind each ending; what comes between runs belongs to the run before (F167)."""
    log = two_runs()
    log.add(StateChanged, delta={"a": 1})
    assert rewind_points(log.records) == {0, 3, 6, 7}
    for to in (0, 3, 6, 7):
        check_point(log.records, to)


@pytest.mark.parametrize(("to", "before", "behind"), [(1, 0, 3), (2, 0, 3), (4, 3, 6), (9, 6, None), (-1, 0, 0)])
def test_the_error_names_the_nearest_points(to: int, before: int, behind: int | None) -> None:
    """In the midst of a run, or where there is nothing."""
    with pytest.raises(RewindPointError) as refused:
        check_point(two_runs().records, to)
    assert (refused.value.to, refused.value.before, refused.value.behind) == (to, before, behind)


def test_a_paused_run_is_open() -> None:
    """Between its pause and its end nobody can go back to; others that run meanwhile make no points."""
    log = Log()
    log.run("p", "pay")
    log.say("p", call("c1"))
    log.pause("p", WaitingCall("c1", "confirmation"))
    log.run("r", "beside it")
    log.end("r")
    assert rewind_points(log.records) == {0}
    log.answer("p", "c1")
    log.go_on("p")
    log.end("p")
    assert rewind_points(log.records) == {0, log.last_seq}


def test_what_was_taken_back_is_no_point_any_more() -> None:
    """Nor is the gap; the rewind itself is one, and so is where it went."""
    log = two_runs()
    log.add(Rewound, to=3)
    assert rewind_points(log.records) == {0, 3, 7}
    with pytest.raises(RewindPointError):
        check_point(log.records, 6)


def test_effects_that_remain_are_listed_with_what_became_of_them() -> None:
    """What was started behind the point and is not free of effects; never executed and denied calls did nothing."""
    log = Log()
    log.run("r0", "before")
    log.say("r0", call("c0", "mail"))
    log.add(CallStarted, run_id="r0", call_id="c0", name="mail")
    log.settle("r0", "c0")
    log.end("r0")
    to = log.last_seq
    log.run("r1", "go")
    log.say("r1", *(call(name, name) for name in ("pay", "look", "lost", "denied", "never")))
    log.add(CallStarted, run_id="r1", call_id="pay", name="pay", replay="idempotent")
    log.add(CallStarted, run_id="r1", call_id="pay", name="pay", attempt=2, replay="idempotent")
    log.add(CallStarted, run_id="r1", call_id="look", name="look", replay="safe")
    log.add(CallStarted, run_id="r1", call_id="lost", name="lost")
    log.settle("r1", "pay")
    log.settle("r1", "denied", "denied")
    assert not_undone(log.records, to) == ("pay pay: succeeded", "lost lost: unknown")
    log.settle("r1", "lost", "unknown", cause="crash")
    log.settle("r1", "lost", "succeeded", late=True)
    assert not_undone(log.records, to) == ("pay pay: succeeded", "lost lost: succeeded")
    assert not_undone(log.records, log.last_seq) == ()


def test_effects_that_an_earlier_rewind_took_back_are_not_told_again() -> None:
    """Whoever took them back was told."""
    log = Log()
    log.run("r1", "go")
    log.say("r1", call("c1", "pay"))
    log.add(CallStarted, run_id="r1", call_id="c1", name="pay")
    log.settle("r1", "c1")
    log.end("r1")
    assert len(not_undone(log.records, 0)) == 1
    log.add(Rewound, to=0)
    assert not_undone(log.records, 0) == ()


@given(wild_logs())
def test_points_and_effects_of_any_log(records: list[Record]) -> None:
    """Total: a point is 0 or the seq of a record that counts, and nothing is listed twice."""
    points = rewind_points(records)
    kept = {record.seq for record in effective(records)}
    assert 0 in points and points <= {0, *kept}
    for to in (-1, 0, 3, 10**9):
        listed = not_undone(records, to)
        assert len(set(listed)) == len(listed)
        if to in points:
            check_point(records, to)
        else:
            with pytest.raises(RewindPointError) as refused:
                check_point(records, to)
            assert refused.value.before in points


@given(st.data(), grammatical_logs(rewrites=True), st.sampled_from(FAMILIES).map(ModelProfile))
def test_going_back_to_a_point_is_as_if_nothing_had_come_after(
    data: st.DataObject, records: list[Record], profile: ModelProfile
) -> None:
    """What the model is told, and the session's own state, are those of the time; the next request is valid (F12)."""
    points = sorted(rewind_points(records))
    to = data.draw(st.sampled_from(points))
    before = fold(records[:to])
    back = fold([*records, Rewound(id="back", time=0, seq=len(records) + 1, to=to)])
    assert (back.state, back.active_agent) == (before.state, before.active_agent)
    now, then = project(back.records, "root", profile), project(before.records, "root", profile)
    assert list(now) == list(then)
    new = RunStarted(id="new", time=0, seq=len(records) + 2, run_id="new", input=Content.of("and now?"))
    turns = list(project([*back.records, new], "root", profile))
    assert breach_of(turns, profile.name) is None
    assert "and now?" in all_text(turns)


def test_a_summary_that_was_taken_back_stands_for_nothing() -> None:
    """What it covered is told in full again."""
    log = two_runs()
    log.add(Compacted, upto=3, summary=Content.of("in short"))
    assert "in short" in all_text(log.told()) and "ask r1" not in all_text(log.told())
    log.add(Rewound, to=6)
    assert "in short" not in all_text(log.told()) and "ask r1" in all_text(log.told())
