"""Budgets: what a run may still do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.logs import Log, call

from heaveto.core.limits import exceeded_limit, seconds_left
from heaveto.errors import LimitExceededError, LlmCallsLimitExceededError
from heaveto.events.records import Limits, Usage


def spent(**limits: Any) -> Log:
    """A run that has made two model calls of 10 + 5 tokens at a cost of 0.5 each, started at second 1."""
    log = Log()
    log.run("r1", "hi", limits=Limits(**limits))
    log.say("r1", call("c1"), usage=Usage(10, 5, cost=0.5))
    log.settle("r1", "c1")
    log.say("r1", "done", author="b", branch="par.b", usage=Usage(10, 5, cost=0.5))
    return log


@pytest.mark.parametrize(
    ("limits", "exceeded"),
    [
        ({}, None),
        ({"llm_calls": None}, None),
        ({"llm_calls": 3}, None),
        ({"llm_calls": 2}, "model calls"),
        ({"llm_calls": 0}, "model calls"),
        ({"tokens": 31}, None),
        ({"tokens": 30}, "tokens"),
        ({"cost": 1.1}, None),
        ({"cost": 1.0}, "cost"),
        ({"llm_calls": 2, "tokens": 1, "cost": 0.1}, "model calls"),
    ],
)
def test_a_budget_forbids_one_call_more_when_it_is_used_up(limits: dict[str, Any], exceeded: str | None) -> None:
    """Counted over all agents and branches of the run; at the limit no further call is made."""
    error = exceeded_limit(spent(**limits).state.run("r1"))
    assert (error.what if error else None) == exceeded
    assert isinstance(error, LlmCallsLimitExceededError) is (exceeded == "model calls")


def test_calls_that_left_no_message_count() -> None:
    """A model that fails again and again uses the budget up as well."""
    run = spent(llm_calls=4).state.run("r1")
    assert exceeded_limit(run, failed_calls=1) is None
    assert isinstance(exceeded_limit(run, failed_calls=2), LlmCallsLimitExceededError)


def test_budgets_go_on_over_attempts() -> None:
    """A further attempt neither refills nor changes them; what a callback said costs no call."""
    log = spent(llm_calls=3)
    log.run("r1", "hi", attempt=2, limits=Limits(llm_calls=100))
    log.say("r1", "from a callback", seen=0)
    assert exceeded_limit(log.state.run("r1")) is None
    log.say("r1", "third")
    assert isinstance(exceeded_limit(log.state.run("r1")), LlmCallsLimitExceededError)


@pytest.mark.parametrize(
    ("limits", "left", "what"),
    [
        ({}, None, None),
        ({"seconds": 60}, 51, "seconds"),
        ({"deadline": 20}, 10, None),
        ({"seconds": 60, "deadline": 20}, 10, None),
        ({"seconds": 5, "deadline": 20}, -4, "seconds"),
        ({"seconds": 19, "deadline": 20}, 10, None),
        ({"seconds": 0}, -9, "seconds"),
    ],
)
def test_the_nearest_time_limit_counts(limits: dict[str, Any], left: float | None, what: str | None) -> None:
    """Seconds run from the first start, the deadline is a point in time; a past one leaves less than nothing."""
    found = seconds_left(spent(**limits).state.run("r1"), 10.0)
    assert (found[0] if found else None) == left
    error = found[1] if found else None
    assert (error.what if error else None) == what
    assert error is None or isinstance(error, LimitExceededError)


def test_time_runs_on_over_attempts() -> None:
    """The clock of a run is that of its first start."""
    log = spent(seconds=60)
    log.run("r1", "hi", attempt=2)
    found = seconds_left(log.state.run("r1"), 31.0)
    assert found is not None and found[0] == 30
