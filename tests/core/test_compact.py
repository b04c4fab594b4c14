"""When a conversation is summarised and what of it: never through something that is open (F12, F14, F15)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.core.judge import breach_of
from tests.core.logs import Log, all_text, call
from tests.core.strategies import FAMILIES, grammatical_logs, wild_logs

from heaveto.core.compact import CompactionPoint, compaction_point
from heaveto.core.fold import SessionState, effective, fold
from heaveto.core.project import project
from heaveto.core.request import ModelProfile
from heaveto.events.contents import Content
from heaveto.events.records import (
    CallSettled,
    Compacted,
    Message,
    Paused,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    Usage,
    WaitingCall,
)


def point(log: Log, *, after_runs: int | None = 1, after_tokens: int | None = None, keep_runs: int = 0) -> int | None:
    found = compaction_point(log.state, after_runs=after_runs, after_tokens=after_tokens, keep_runs=keep_runs)
    return None if found is None else found.upto


def talk(log: Log, *run_ids: str, tokens: int = 10) -> None:
    """Runs of three records each."""
    for run_id in run_ids:
        log.run(run_id, f"ask {run_id}")
        log.say(run_id, f"answer {run_id}", usage=Usage(tokens, 1))
        log.end(run_id)


def summarise(log: Log, upto: int, text: str = "in short") -> Compacted:
    return log.add(Compacted, upto=upto, summary=Content.of(text))


def test_runs_that_ended_since_the_last_summary_count() -> None:
    """So many and as many as are kept; what a summary covers counts no more, what it left does."""
    log = Log()
    talk(log, "r1", "r2")
    assert point(log, after_runs=3) is None
    assert point(log, after_runs=2, keep_runs=1) is None
    assert point(log, after_runs=2) == 6
    assert point(log, after_runs=1, keep_runs=1) == 3
    summarise(log, 3)
    assert point(log, after_runs=2) is None
    assert point(log, after_runs=1) == 6
    talk(log, "r3")
    assert point(log, after_runs=2) == log.last_seq


def test_a_large_request_counts_at_once() -> None:
    """Until the next summary was made."""
    log = Log()
    talk(log, "r1", tokens=99)
    talk(log, "r2", tokens=100)
    assert point(log, after_runs=None, after_tokens=101) is None
    assert point(log, after_runs=None, after_tokens=100) == 6
    assert point(log, after_runs=None, after_tokens=100, keep_runs=1) == 3
    summarise(log, 6)
    assert point(log, after_runs=None, after_tokens=100) is None


def test_what_is_kept_is_kept() -> None:
    """Also where there are fewer runs than are to be kept, and however large they are."""
    log = Log()
    for number in range(1, 5):
        talk(log, f"r{number}", tokens=1000)
        for keep in range(number, number + 6):
            assert point(log, after_runs=None, after_tokens=1, keep_runs=keep) is None


def test_an_empty_session_has_nothing_to_summarise() -> None:
    """Nor one whose runs never began."""
    log = Log()
    assert point(log, after_tokens=1) is None
    log.ask_to_stop("r1")
    log.cancel("r1")
    assert point(log, after_tokens=1) is None


def test_nothing_is_summarised_while_a_run_runs() -> None:
    """The next look comes at its end."""
    log = Log()
    talk(log, "r1", "r2")
    log.run("r3", "hi")
    assert point(log) is None


def test_a_paused_run_is_not_summarised_away() -> None:
    """Its question, its calls and what it was told stay as they are; what lies before it may go (F12)."""
    log = Log()
    talk(log, "r1")
    log.run("p", "pay")
    log.say("p", call("c1", "pay"))
    log.pause("p", WaitingCall("c1", "confirmation"))
    talk(log, "r2", "r3")
    assert point(log) == 3


def test_a_run_that_was_paused_among_others_is_not_cut_in_two() -> None:
    """An ending that another run was open at is no boundary, also when that run is over at last (F12)."""
    log = Log()
    talk(log, "r1")
    log.run("p", "pay")
    log.say("p", call("c1", "pay"))
    log.pause("p", WaitingCall("c1", "confirmation"))
    talk(log, "r2")
    log.answer("p", "c1")
    log.go_on("p")
    log.start("p", "c1")
    log.settle("p", "c1", response={"paid": 1})
    log.end("p")
    assert point(log, keep_runs=1) == 3
    assert point(log) == log.last_seq


def test_a_call_in_the_background_is_not_summarised_away() -> None:
    """Its outcome is still to come, and needs its call."""
    log = Log()
    talk(log, "r1")
    log.run("b", "dig")
    log.say("b", call("c1", "dig"))
    log.start("b", "c1")
    log.settle("b", "c1", "detached")
    log.end("b")
    talk(log, "r2")
    assert point(log) == 3
    log.settle("b", "c1", response={"dug": 1}, late=True)
    talk(log, "r3")
    assert point(log) == log.last_seq


def test_what_was_taken_back_does_not_count() -> None:
    """Neither its runs nor its summaries."""
    log = Log()
    talk(log, "r1")
    log.add(Rewound, to=0)
    assert point(log) is None
    talk(log, "r2", "r3")
    assert point(log, after_runs=2) == log.last_seq
    summarise(log, log.last_seq)
    assert point(log) is None
    log.add(Rewound, to=log.last_seq - 1)
    assert point(log, after_runs=2) == log.last_seq - 2


def test_what_is_summarised_is_told_like_any_request() -> None:
    """The prompt of the summary is a projection, too: valid, and earlier summaries stand in it (F15)."""
    log = Log()
    talk(log, "r1", "r2")
    summarise(log, 3, "r1 in short")
    talk(log, "r3")
    turns = CompactionPoint(6).turns(log.records, "a", ModelProfile("anthropic"))
    text = all_text(list(turns))
    assert "r1 in short" in text and "ask r2" in text
    assert "ask r1" not in text and "r3" not in text


def open_at(records: list[Record], seq: int) -> set[str]:
    """The runs that are open behind a seq, and the calls in the background."""
    runs, calls = set[str](), set[str]()
    for record in effective(records):
        if record.seq > seq:
            break
        match record:
            case RunStarted():
                runs.add(record.run_id)
            case RunEnded():
                runs.discard(record.run_id)
            case CallSettled(status="detached"):
                calls.add(record.call_id)
            case CallSettled():
                calls.discard(record.call_id)
            case _:
                pass
    return runs | calls


limits = st.none() | st.integers(1, 4)


@given(grammatical_logs(max_runs=6, rewrites=True), limits, st.none() | st.integers(1, 20), st.integers(0, 4))
def test_the_point_lies_where_nothing_is_open(
    records: list[Record], after_runs: int | None, after_tokens: int | None, keep_runs: int
) -> None:
    """In real sessions, summarised and taken back before: behind the last summary, at an ending, with nothing open."""
    state = SessionState()
    for record in records:
        state.apply(record)
        found = compaction_point(state, after_runs=after_runs, after_tokens=after_tokens, keep_runs=keep_runs)
        if found is None:
            continue
        now = state.records
        assert isinstance(now[found.upto - 1], RunEnded)
        assert now[found.upto - 1] in effective(now)
        assert not open_at(now, found.upto)
        kept = [one for one in effective(now) if one.seq > found.upto and isinstance(one, RunEnded)]
        assert len(kept) >= keep_runs
        summarised = [one.upto for one in effective(now) if isinstance(one, Compacted)]
        assert found.upto > max(summarised, default=0)


@given(st.data(), grammatical_logs(max_runs=6), st.sampled_from(FAMILIES).map(ModelProfile))
def test_a_summary_at_the_point_leaves_valid_requests_and_pending_calls(
    data: st.DataObject, records: list[Record], profile: ModelProfile
) -> None:
    """The prompt for it, and every later request, are accepted by the provider; no waiting call is lost (F12, F14)."""
    state = fold(records)
    found = compaction_point(state, after_runs=1, after_tokens=None, keep_runs=data.draw(st.integers(0, 2)))
    if found is None:
        return
    assert breach_of(list(found.turns(records, "root", profile)), profile.name) is None
    summary = Compacted(id="s", time=0, seq=state.last_seq + 1, upto=found.upto, summary=Content.of("in short"))
    waiting = [known.call.call_id for known in state.calls.values() if known.is_waiting]
    state.apply(summary)
    assert [known.call.call_id for known in state.calls.values() if known.is_waiting] == waiting
    turns = list(project(state.records, "root", profile))
    assert breach_of(turns, profile.name) is None
    assert "in short" in all_text(turns)
    asked = {w.call_id for r in records if isinstance(r, Paused) for w in r.waiting} & set(waiting)
    said = [r for r in records if isinstance(r, Message) and any(p in asked for p in _call_ids(r))]
    assert all(message.seq > found.upto for message in said)


def _call_ids(message: Message) -> list[str]:
    return [getattr(part, "call_id", "") for part in message.parts]


@given(wild_logs(), limits, limits, st.integers(0, 5))
def test_a_point_can_be_asked_for_of_any_log(
    records: list[Record], after_runs: int | None, after_tokens: int | None, keep_runs: int
) -> None:
    """Total, and the same each time."""
    state = fold(records)
    found = compaction_point(state, after_runs=after_runs, after_tokens=after_tokens, keep_runs=keep_runs)
    assert found == compaction_point(state, after_runs=after_runs, after_tokens=after_tokens, keep_runs=keep_runs)
    if found is not None:
        assert 1 <= found.upto <= state.last_seq
        assert breach_of(list(found.turns(records, "a", ModelProfile("openai"))), "openai") is None
