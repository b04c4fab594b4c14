"""The projection of logs as the runner writes them: valid, truthful, complete, stable (P1, P2, P4, P9)."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.judge import (
    Viewpoint,
    answered_requests,
    breach_of,
    check_calls_are_told_truly,
    check_endings_are_told,
    check_nothing_is_lost,
    check_withheld_answers_are_not_told,
)
from tests.core.strategies import FAMILIES, grammatical_logs
from tests.effort import examples

from heaveto.core.project import View, project
from heaveto.core.request import ModelProfile, Turn
from heaveto.events.contents import Content
from heaveto.events.records import CallStarted, Message, Record, RunStarted

MANY = settings(max_examples=examples(2) * settings().max_examples)


def viewpoints(records: Sequence[Record], profile: ModelProfile) -> list[Viewpoint]:
    """Everyone whose model was asked, and an agent that has never been."""
    known = {(record.author, record.branch) for record in records if isinstance(record, Message)}
    known -= {(author, branch) for author, branch in known if author == "user"}
    return [Viewpoint(agent, branch, profile) for agent, branch in sorted(known | {("root", ""), ("stranger", "")})]


def turns_of(view: Viewpoint, records: Sequence[Record]) -> list[Turn]:
    return list(project(records, view.agent, view.profile, branch=view.branch))


profiles = st.sampled_from(FAMILIES).map(ModelProfile)
new_texts = st.sampled_from(("go on", "", " ", "what is 2+2?")) | st.text(max_size=20)


@MANY
@given(st.data(), grammatical_logs(), profiles, new_texts)
def test_any_prefix_with_any_new_text_is_a_valid_request(
    data: st.DataObject, records: list[Record], profile: ModelProfile, text: str
) -> None:
    """Cut anywhere and continued with any text, a log projects to what the provider accepts (P1, F01, F02, F06)."""
    cut = data.draw(st.integers(0, len(records)))
    new = RunStarted(id="new", time=0, seq=cut + 1, run_id="new", input=Content.of(text))
    for view in viewpoints(records, profile):
        continued = [*records[:cut], new]
        turns = turns_of(view, continued)
        assert breach_of(turns, profile.name) is None
        check_nothing_is_lost(view, continued, turns)


@MANY
@given(grammatical_logs(), profiles)
def test_every_prefix_is_told_truly_and_completely(records: list[Record], profile: ModelProfile) -> None:
    """At every record of a log: no result and no text is lost, no call and no ending is told as what it is not (P2)."""
    for view in viewpoints(records, profile):
        for cut in range(len(records) + 1):
            turns = turns_of(view, records[:cut])
            check_nothing_is_lost(view, records[:cut], turns)
            check_calls_are_told_truly(view, records[:cut], turns)
            check_endings_are_told(view, records[:cut], turns)
            check_withheld_answers_are_not_told(view, records[:cut], turns)


@MANY
@given(grammatical_logs(), profiles)
def test_what_a_model_was_told_stays_as_it_was(records: list[Record], profile: ModelProfile) -> None:
    """A request is, turn by turn, the beginning of every later one: caches and signed thinking hold (P9)."""
    for view in viewpoints(records, profile):
        now = turns_of(view, records)
        for message in answered_requests(view, records):
            before = turns_of(view, records[: message.seen])
            after = turns_of(view, records[: message.seq])
            assert after[: len(before)] == before == now[: len(before)]
            assert after[len(before)] == now[len(before)]
            assert after[len(before)].role == "model"


@MANY
@given(st.data(), grammatical_logs(rewrites=True), profiles)
def test_a_view_that_follows_the_log_says_what_a_fresh_one_says(
    data: st.DataObject, records: list[Record], profile: ModelProfile
) -> None:
    """Incremental or anew, asked once or twice, the projection is the same, and the records are left alone (P1)."""
    before = copy.deepcopy(records)
    for viewpoint in viewpoints(records, profile):
        view = View(viewpoint.agent, viewpoint.branch, profile)
        for cut in sorted(data.draw(st.sets(st.integers(0, len(records)), max_size=8))):
            followed = view.turns(records[:cut])
            assert list(followed) == turns_of(viewpoint, records[:cut])
            assert view.turns(records[:cut]) == followed
    assert records == before


@MANY
@given(st.data(), grammatical_logs(rewrites=True), profiles, new_texts)
def test_summaries_and_rewinds_leave_a_valid_request(
    data: st.DataObject, records: list[Record], profile: ModelProfile, text: str
) -> None:
    """A summary may cut anywhere, also through a batch of calls; a rewind may go anywhere (F12, F14)."""
    cut = data.draw(st.integers(0, len(records)))
    new = RunStarted(id="new", time=0, seq=cut + 1, run_id="new", input=Content.of(text))
    for view in viewpoints(records, profile):
        turns = turns_of(view, [*records[:cut], new])
        assert breach_of(turns, profile.name) is None
        check_nothing_is_lost(view, [new], turns)


@given(grammatical_logs(), profiles)
def test_an_isolated_view_may_start_at_its_call(records: list[Record], profile: ModelProfile) -> None:
    """What came before the call that an agent works for does not matter to it, so that it need not be read (P9)."""
    for view in viewpoints(records, profile):
        if not view.is_isolated:
            continue
        call_id = view.branch.rpartition("@")[2].split(".")[0]
        started = next(r.seq for r in records if isinstance(r, CallStarted) and r.call_id == call_id)
        whole = turns_of(view, records)
        assert View(view.agent, view.branch, profile, started - 1).turns(records) == whole
