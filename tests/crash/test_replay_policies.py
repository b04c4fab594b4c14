"""The five recoveries of a call that was killed in mid-work, each in real processes with a real kill -9."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.payments import PaymentService, payment_service
from tests.crash.shop import CHUNKS, OUTPUT, Place, kill_in, make_tool, recover

from heaveto import RunConfig
from heaveto.events.records import CallSettled, CallStarted, Record, RunEnded, RunStarted
from heaveto.testing.promises import check_promises

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs POSIX signals")


@pytest.fixture
def service() -> Iterator[PaymentService]:
    with payment_service() as service:
        yield service


def started(log: list[Record]) -> list[CallStarted]:
    return [record for record in log if isinstance(record, CallStarted)]


def settled(log: list[Record]) -> CallSettled:
    """The one settlement of the one call of a run that went on to its end."""
    check_promises(log)
    ended = next(record for record in log if isinstance(record, RunEnded))
    assert (ended.outcome, ended.llm_calls) == ("completed", 2)
    [settlement] = [record for record in log if isinstance(record, CallSettled)]
    return settlement


def kill_and_recover(place: Place, name: str, before: str, now: str | None) -> tuple[list[Record], str]:
    """Kill the tool under one policy, and recover when it says another; None: when it is no more."""
    kill_in(place, name, before)
    tools = [] if now is None else [make_tool(Place(place.path, place.payments), name, now)]
    return recover(place, name, *tools)


@pytest.mark.parametrize("moment", ["before", "behind"])
def test_never_is_told_as_unknown(tmp_path: Path, moment: str) -> None:
    """A tool that says nothing is not executed again, wherever it was killed; the model learns that nobody knows what
    came of it, and the run goes on (F106, F144)."""
    place = Place(tmp_path, die_at=moment)
    log, told = kill_and_recover(place, "act", "never", "never")
    assert len(place.marks) == (moment == "behind")
    assert (settled(log).status, settled(log).cause) == ("unknown", "crash")
    assert "the process died" in told
    assert "Check before doing it again" in told


@pytest.mark.parametrize("moment", ["before", "behind"])
def test_safe_is_executed_again(tmp_path: Path, moment: str) -> None:
    """A harmless tool is simply executed again, as the next attempt of the same call (F106, F144)."""
    place = Place(tmp_path, die_at=moment)
    log, told = kill_and_recover(place, "act", "safe", "safe")
    assert len(place.marks) == (2 if moment == "behind" else 1)
    assert [(start.attempt, start.replay) for start in started(log)] == [(1, "safe"), (2, "safe")]
    assert settled(log).response == {"result": "acted"}
    assert "acted" in told


@pytest.mark.parametrize("moment", ["before", "behind"])
def test_idempotent_pays_once(tmp_path: Path, service: PaymentService, moment: str) -> None:
    """A payment is requested again under the same key, and the service has made one (F106, F144)."""
    place = Place(tmp_path, service.url, die_at=moment)
    log, _ = kill_and_recover(place, "pay", "idempotent", "idempotent")
    key = started(log)[0].idempotency_key
    assert service.requests == [("POST", key)] * (2 if moment == "behind" else 1)
    assert service.payments == {key: {"receipt": 1, "amount": 10}}
    assert [start.idempotency_key for start in started(log)] == [key, key]
    assert settled(log).response == {"receipt": 1, "amount": 10}


def test_a_probe_finds_what_was_done(tmp_path: Path, service: PaymentService) -> None:
    """A tool that can look is asked: what it finds is the call's result, and it is not executed again (F106)."""
    place = Place(tmp_path, service.url, die_at="behind")
    log, _ = kill_and_recover(place, "pay", "probe", "probe")
    key = started(log)[0].idempotency_key
    assert service.requests == [("POST", key), ("GET", key)]
    assert [start.attempt for start in started(log)] == [1]
    assert (settled(log).status, settled(log).response) == ("succeeded", {"receipt": 1, "amount": 10})


def test_a_probe_finds_that_nothing_was_done(tmp_path: Path, service: PaymentService) -> None:
    """Where it finds nothing, the call is executed now, and never was before (F106)."""
    place = Place(tmp_path, service.url, die_at="before")
    log, _ = kill_and_recover(place, "pay", "probe", "probe")
    key = started(log)[0].idempotency_key
    assert service.requests == [("GET", key), ("POST", key)]
    assert [start.attempt for start in started(log)] == [1, 2]
    assert (settled(log).status, settled(log).response) == ("succeeded", {"receipt": 1, "amount": 10})


def test_a_probe_that_cannot_tell(tmp_path: Path, service: PaymentService) -> None:
    """Where it cannot tell, nothing is done, and the model is told that nobody knows, and why (F106)."""
    place = Place(tmp_path, service.url, die_at="behind")
    kill_in(place, "pay", "probe")
    service.is_blind = True
    log, told = recover(place, "pay", make_tool(Place(tmp_path, service.url), "pay", "probe"))
    assert [method for method, _ in service.requests] == ["POST", "GET"]
    assert (settled(log).status, settled(log).cause) == ("unknown", "crash")
    assert "HTTPError: HTTP Error 500" in str(settled(log).response)
    assert "Check before doing it again" in told


@pytest.mark.parametrize("moment", ["written 0", "noted 0", "written 2", "noted 2", "written 4", "noted 4"])
def test_an_export_goes_on_at_its_chunk(tmp_path: Path, moment: str) -> None:
    """A long tool continues from its last durable progress: no chunk is in the file twice, none is missing, and what
    was noted as done is not done again (F144, F57)."""
    place = Place(tmp_path, die_at=moment)
    log, _ = kill_and_recover(place, "export", "idempotent", "idempotent")
    what, number = moment.split()
    done = int(number) + (what == "noted")
    assert settled(log).response == {"chunks": len(CHUNKS), "from": done}
    assert (tmp_path / "export").read_text() == "".join(CHUNKS)
    again = [number] if what == "written" else []
    assert sorted(place.marks) == sorted([*map(str, range(len(CHUNKS))), *again])


@pytest.mark.parametrize(
    ("before", "now", "status", "requests"),
    [
        ("safe", "never", "unknown", ["POST"]),
        ("never", "safe", "unknown", ["POST"]),
        ("never", "probe", "unknown", ["POST"]),
        ("idempotent", None, "unknown", ["POST"]),
        ("probe", "safe", "unknown", ["POST"]),
        ("idempotent", "probe", "succeeded", ["POST", "GET"]),
        ("safe", "idempotent", "succeeded", ["POST", "POST"]),
    ],
)
def test_then_and_now_must_agree(
    tmp_path: Path, service: PaymentService, before: str, now: str | None, status: str, requests: list[str]
) -> None:
    """The policy that was recorded with the start and the one that the tool has now must both allow what is done; a
    tool that is gone allows nothing (F106)."""
    place = Place(tmp_path, service.url, die_at="behind")
    log, _ = kill_and_recover(place, "pay", before, now)
    assert settled(log).status == status
    assert [method for method, _ in service.requests] == requests
    assert len(service.payments) == 1


def test_what_a_dead_call_had_put_out_is_told(tmp_path: Path) -> None:
    """The output of a call that died with its process stands in its settlement, and the model is told it (F60)."""
    place = Place(tmp_path, die_at="behind")
    log, told = kill_and_recover(place, "talk", "never", "never")
    assert settled(log).response == {"output": OUTPUT}
    assert "a line of output" in told


def test_a_tool_that_kills_its_process_each_time(tmp_path: Path) -> None:
    """A run whose tool takes the process with it each time is tried so often and no more, and is then sealed as
    crashed: no loop over restarts (F107)."""
    place, config = Place(tmp_path, die_at="behind"), RunConfig(max_fruitless_attempts=2)
    for _ in range(3):
        kill_in(place, "act", "safe", config)
    log, _ = recover(place, "act", make_tool(Place(tmp_path), "act", "safe"))
    assert len(place.marks) == 3
    check_promises(log)
    assert [record.attempt for record in log if isinstance(record, RunStarted)] == [1, 2, 3]
    [ended] = [record for record in log if isinstance(record, RunEnded)]
    assert (ended.outcome, ended.cause) == ("failed", "crash")
    [call] = [record for record in log if isinstance(record, CallSettled)]
    assert (call.status, call.cause) == ("unknown", "crash")


def test_getting_on_counts_from_the_beginning(tmp_path: Path) -> None:
    """An attempt that records progress before it dies is not fruitless: an export that is killed at every chunk comes
    to its end, however few fruitless attempts it is allowed (F107)."""
    config = RunConfig(max_fruitless_attempts=1)
    for number in range(len(CHUNKS)):
        kill_in(Place(tmp_path, die_at=f"noted {number}"), "export", "idempotent", config)
    log, _ = recover(Place(tmp_path), "export", make_tool(Place(tmp_path), "export", "idempotent"))
    assert settled(log).response == {"chunks": len(CHUNKS), "from": len(CHUNKS)}
    assert (tmp_path / "export").read_text() == "".join(CHUNKS)
    assert [start.attempt for start in started(log)] == list(range(1, len(CHUNKS) + 2))
