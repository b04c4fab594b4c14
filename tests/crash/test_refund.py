"""A refund that needs a yes, at a real payment service, in processes that are really killed: one payment, or an honest
word that nobody knows."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import get_args

import pytest
from tests.crash.payments import PaymentService, payment_service
from tests.crash.refund_work import AMOUNT, Desk, Moment, Policy, bring_home, kill_at

from heaveto.events.contents import text_of
from heaveto.events.records import Answered, CallSettled, CallStarted, Message, Record, RunEnded
from heaveto.testing.promises import check_promises

pytestmark = [pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals"), pytest.mark.slow]
POLICIES: tuple[Policy, ...] = get_args(Policy)


def check(policy: Policy, log: list[Record], service: PaymentService) -> str:
    """Hold the whole against what is promised, and return what became of the call."""
    check_promises(log)
    [ended] = [record for record in log if isinstance(record, RunEnded)]
    assert ended.outcome == "completed"
    answers = [record for record in log if isinstance(record, Answered)]
    assert [(answer.decision, answer.by) for answer in answers] == [("approve", "ann")]
    [settled] = [record for record in log if isinstance(record, CallSettled)]
    starts = [record for record in log if isinstance(record, CallStarted)]
    assert all(start.seq > answers[0].seq for start in starts), "nothing is executed before somebody said yes"
    said = text_of([record for record in log if isinstance(record, Message)][-1].parts)
    assert len(service.payments) <= 1
    if settled.status == "succeeded":
        assert [payment["amount"] for payment in service.payments.values()] == [AMOUNT]
        assert "'receipt': 1" in said
    else:
        assert (settled.status, settled.cause, policy) == ("unknown", "crash", "never")
        assert len(service.requests) <= 1
        assert "Check before doing it again" in said
    return settled.status


def one_death(place: Path, policy: Policy, moment: Moment) -> str | None:
    """Kill a process at the moment, and bring its refund home. None: it was through before."""
    place.mkdir()
    with payment_service() as service:
        desk = Desk(place, service.url, policy)
        if not kill_at(desk, moment):
            return None
        try:
            return check(policy, bring_home(desk), service)
        except AssertionError as error:
            raise AssertionError(f"killed {moment}: {error}") from error


@pytest.mark.parametrize("policy", POLICIES)
def test_killed_around_each_append(tmp_path: Path, policy: Policy) -> None:
    """Before and behind each append of the whole refund, the question and the answer included; then two processes
    answer and go on at once. The approved refund is paid once; only where its tool may never be repeated can it be
    unknown, and then it is told so (F86, F105, F106)."""
    statuses: dict[Moment, str] = {}
    for number in itertools.count(1):
        moments: list[Moment] = [("before append", number), ("behind append", number)]
        found = [one_death(tmp_path / f"{number}-{moment[0][:6]}", policy, moment) for moment in moments]
        if None in found:
            break
        statuses.update(zip(moments, map(str, found), strict=True))
    assert len(statuses) >= 12
    unknown = [moment for moment, status in statuses.items() if status == "unknown"]
    # Between the durable start of the call and its result lies one gap: behind the one append, before the next.
    assert len(unknown) == (2 if policy == "never" else 0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("where", ["before request", "behind request"])
def test_killed_around_the_request(tmp_path: Path, policy: Policy, where: str) -> None:
    """On either side of the payment itself: who may repeat or look it up pays once, and who may not says that nobody
    knows, having asked the service once at most (F105, F106)."""
    status = one_death(tmp_path / "desk", policy, (where, 1))  # type: ignore[arg-type]
    assert status == ("unknown" if policy == "never" else "succeeded")


def test_two_processes_approve_at_the_same_time(tmp_path: Path) -> None:
    """Without any crash: both say yes, one answer counts, one process pays (F72, F86)."""
    with payment_service() as service:
        log = bring_home(Desk(tmp_path, service.url, "never"))
        assert check("never", log, service) == "succeeded"
        assert len(service.requests) == 1
