"""The projection of logs that nobody should have written: total, valid, never a lie in favour of success (P1)."""

from __future__ import annotations

import copy

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.judge import breach_of
from tests.core.strategies import AGENTS, BRANCHES, FAMILIES, wild_logs
from tests.effort import examples

from heaveto.core.project import View, project
from heaveto.core.request import ModelProfile, ModelRequest
from heaveto.events.contents import Content
from heaveto.events.records import CallSettled, Record, RunStarted
from heaveto.testing.request_check import find_breach

MANY = settings(max_examples=examples(2) * settings().max_examples)
agents = st.sampled_from((*AGENTS, "stranger"))
branches = st.sampled_from(BRANCHES)
profiles = st.builds(ModelProfile, st.sampled_from((*FAMILIES, "other")), st.booleans())


@MANY
@given(st.data(), wild_logs(), agents, branches, profiles, st.text(max_size=9))
def test_any_prefix_of_any_log_is_a_valid_request(
    data: st.DataObject, records: list[Record], agent: str, branch: str, profile: ModelProfile, text: str
) -> None:
    """Orphans, repeated ids, settlements before starts, unknown runs: the request is valid all the same (F04, F20)."""
    cut = data.draw(st.integers(0, len(records)))
    new = RunStarted(id="new", time=0, seq=cut + 1, run_id="new", input=Content.of(text))
    turns = project([*records[:cut], new], agent, profile, branch=branch)
    assert breach_of(turns, profile.name) is None
    if text.strip() and "@" not in branch:
        assert text in [getattr(part, "text", "") for part in turns[-1].parts]


@MANY
@given(wild_logs(), agents, branches, st.sampled_from((*FAMILIES, "other")).map(ModelProfile))
def test_one_request_suits_every_provider(
    records: list[Record], agent: str, branch: str, profile: ModelProfile
) -> None:
    """Turns made for one provider are accepted by all: a session may change its model at any time."""
    assert find_breach(ModelRequest(turns=project(records, agent, profile, branch=branch))) is None


@MANY
@given(wild_logs(), agents, branches, profiles)
def test_following_the_log_and_reading_it_anew_agree(
    records: list[Record], agent: str, branch: str, profile: ModelProfile
) -> None:
    """Record by record or all at once, once or twice, the turns are the same; records are not changed."""
    before = copy.deepcopy(records)
    view = View(agent, branch, profile)
    for cut in range(len(records) + 1):
        followed = view.turns(records[:cut])
        assert list(followed) == list(project(records[:cut], agent, profile, branch=branch))
        assert view.turns(records[:cut]) == followed
    assert records == before


@MANY
@given(wild_logs(), agents, branches, profiles)
def test_nothing_is_told_as_a_success_that_did_not_succeed(
    records: list[Record], agent: str, branch: str, profile: ModelProfile
) -> None:
    """A result without an error mark comes from a `succeeded` settlement, or says that it is pending (P2, F35)."""
    succeeded = [
        {} if record.response is None else record.response
        for record in records
        if isinstance(record, CallSettled) and record.status == "succeeded"
    ]
    for turn in project(records, agent, profile, branch=branch):
        for answer in turn.responses:
            is_pending = answer.response.get("status") == "pending"
            assert answer.is_error or is_pending or answer.response in succeeded
