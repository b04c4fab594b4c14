"""Records survive encoding unchanged, or are refused; formats that were once written are read for ever."""

from __future__ import annotations

import datetime
import math
import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from heaveto.errors import NotSerializableError, RecordFormatError
from heaveto.events import codec
from heaveto.events.codec import Codec
from heaveto.events.contents import (
    Blob,
    Content,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Opaque,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
)
from heaveto.events.records import (
    AgentCheckpoint,
    Answered,
    CallProgress,
    CallSettled,
    CallStarted,
    CancelRequested,
    Compacted,
    Draft,
    ErrorInfo,
    Message,
    Operation,
    Paused,
    PauseRequested,
    Queued,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    StateChanged,
    StopReport,
    Transferred,
    Usage,
    WaitingCall,
)

GOLDEN = Path(__file__).parent / "golden"

BASE: dict[str, Any] = {
    "id": "0197c0de-0000-7000-8000-000000000001",
    "time": 1764000000.25,
    "run_id": "r1",
}
PARTS = (
    Text(text="Grüße, 世界 \U0001f30d\u2028"),
    Thought(text="hm", signature="c2ln", provider="anthropic", data={"kind": "thinking"}),
    FunctionCall(
        call_id="AbC012xyz",
        name="book",
        args={"n": 1, "x": 1.5, "deep": [{"a": None}]},
        provider_id="toolu_1",
    ),
    FunctionCall(call_id="AbC012xyy", name="book", raw_args='{"n":', defect="truncated"),
    FunctionResponse(call_id="AbC012xyz", name="book", response={"error": "no"}, is_error=True),
    Blob(mime_type="image/png", content=b"\x00\x01\xff"),
    FileRef(uri="gs://bucket/x.pdf", mime_type="application/pdf"),
    ProviderCall(id="srv_1", name="web_search", provider="anthropic"),
    ProviderResult(id="srv_1", provider="anthropic", data={"content": []}),
    Opaque(provider="openai", data={"encrypted": "xyz"}),
)
USAGE = Usage(
    input_tokens=10,
    output_tokens=5,
    cached_tokens=2,
    reasoning_tokens=1,
    cost=0.001,
    estimated=True,
)
REPORT = StopReport(
    "r1",
    "cancelled",
    "user",
    "ann",
    (Operation("tool", "book", "still_running", "AbC012xyz"),),
    7,
    USAGE,
)
SAMPLES: tuple[Record, ...] = (
    Queued(
        **BASE,
        input=Content.of("hello"),
        owner="host:1",
        settings={"max_llm_calls": 3, "on_limit": "stop"},
        state_delta={"lang": "en"},
    ),
    CancelRequested(**BASE, cause="user", by="ann", reason="enough"),
    PauseRequested(**BASE, at="after_turn", by="ann", reason="a look first"),
    RunStarted(
        **BASE,
        input=Content.of("hello"),
        trigger="recovery",
        attempt=2,
        agent="root/x",
        tree_hash="ab12",
    ),
    Message(
        **BASE,
        author="root",
        parts=PARTS,
        usage=USAGE,
        provider="anthropic",
        model="m",
        seen=3,
        interrupted="user",
    ),
    CallStarted(
        **BASE,
        call_id="AbC012xyz",
        name="book",
        attempt=2,
        idempotency_key="k",
        replay="idempotent",
    ),
    CallSettled(
        **BASE,
        call_id="AbC012xyz",
        status="succeeded",
        name="book",
        response={"rows": [1, 2.5]},
        late=True,
    ),
    CallProgress(**BASE, call_id="AbC012xyz", value={"done": 3}),
    Paused(
        **BASE,
        waiting=(
            WaitingCall(
                "AbC012xyz",
                "input",
                "ask",
                "your age?",
                {"type": "integer"},
                deadline=9.5,
            ),
        ),
    ),
    Answered(**BASE, call_id="AbC012xyz", decision="approve", args={"n": 2}, by="ann"),
    StateChanged(**BASE, delta={"app:a": 1, "user:b": None, "c": [True]}, author="root"),
    AgentCheckpoint(**BASE, agent="loop", branch="b", agent_state={"times_looped": 2}),
    Transferred(**BASE, agent="root/x"),
    Compacted(**BASE, upto=12, summary=Content.of("before: much")),
    Rewound(**BASE, to=4, not_undone=("book",)),
    RunEnded(
        **BASE,
        outcome="failed",
        error=ErrorInfo("ModelError", "503", True),
        report=REPORT,
        usage=USAGE,
        llm_calls=2,
    ),
)


def text() -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8"), max_size=12)


INTEGERS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text(), inner, max_size=3),
    max_leaves=6,
)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    Any: JSON,
    str: text(),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    int: st.integers(0, 2**63 - 1),
    float: FLOATS,
    type(None): st.none(),
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for any value of a field of ours."""
    origin, arms = get_origin(annotation), get_args(annotation)
    if annotation in LEAVES:
        return LEAVES[annotation]
    if origin is Literal:
        return st.sampled_from(arms)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, arms))
    if origin is tuple:
        return st.lists(values_of(arms[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(text(), JSON, max_size=3)
    return st.deferred(lambda: structs_of(annotation))


def structs_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    fields = {f.name: st.just(1) if f.name == "v" else values_of(f.type) for f in msgspec.structs.fields(cls)}
    return st.builds(cls, **fields)


RECORDS = st.one_of(*map(structs_of, get_args(Record)))


@given(RECORDS)
@settings(max_examples=examples(150), deadline=None)
def test_any_record_is_read_back_as_it_was_written(record: Record) -> None:
    """decode(encode(x)) == x for every record of the union."""
    assert codec.decode(codec.encode(record)) == record


@given(structs_of(Draft))
@settings(max_examples=examples(30), deadline=None)
def test_any_draft_is_read_back_as_it_was_written(draft: Draft) -> None:
    """decode_draft(encode_draft(x)) == x."""
    assert codec.decode_draft(codec.encode_draft(draft)) == draft


def test_there_is_a_sample_of_every_record_type() -> None:
    """A new record type needs a sample here and a golden file: run this file as a program to write the missing ones."""
    assert {type(sample) for sample in SAMPLES} == set(get_args(Record))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_what_was_written_once_is_read_for_ever(sample: Record) -> None:
    """Golden files are never rewritten: the bytes of an old version decode to the same record for ever."""
    golden = (GOLDEN / f"{type(sample).__name__}.json").read_bytes()
    assert codec.decode(golden) == sample
    assert codec.encode(sample) == golden


def test_seq_is_set_on_reading() -> None:
    """The store gives the seq; the stored body does not hold it."""
    assert codec.decode(codec.encode(SAMPLES[0]), seq=7) == msgspec.structs.replace(SAMPLES[0], seq=7)


class _Thing:
    pass


_cycle: list[Any] = []
_cycle.append(_cycle)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "['a'][1]"),
        (math.inf, "['a'][1]"),
        (-math.inf, "['a'][1]"),
        ("\ud800", "['a'][1]"),
        (2**64, "['a'][1]"),
        (-(2**63) - 1, "['a'][1]"),
        (10**5000, "['a'][1]"),
        ({1: 2}, "['a'][1]"),
        ({"\ud800": 2}, "['a'][1]"),
        ({None: 2}, "['a'][1]"),
        ((1, 2), "['a'][1]"),
        ({1, 2}, "['a'][1]"),
        (b"x", "['a'][1]"),
        (datetime.date(2026, 1, 1), "['a'][1]"),
        (Text(text="x"), "['a'][1]"),
        (_Thing(), "['a'][1]"),
        ({"deep": [math.nan]}, "['a'][1]['deep'][0]"),
        (_cycle, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_json_would_change_is_refused_by_its_path(value: Any, path: str) -> None:
    """Nothing is changed silently: the encoder alone would write NaN as null and a tuple as a list."""
    record = CallSettled(**BASE, call_id="c", status="succeeded", response={"a": [0, value]})
    with pytest.raises(NotSerializableError) as caught:
        codec.encode(record)
    assert caught.value.path == "CallSettled.response" + path or not path


@pytest.mark.parametrize(
    ("record", "path"),
    [
        (Message(**BASE, author="a\udfff", parts=()), "Message.author"),
        (Message(id="i", time=math.nan, author="a", parts=()), "Message.time"),
        (
            Message(**BASE, author="a", parts=(Text(text="\ud800"),)),
            "Message.parts[0].text",
        ),
        (CallProgress(**BASE, call_id="c", value=math.nan), "CallProgress.value"),
        (CallProgress(**BASE, call_id="c", value=(1,)), "CallProgress.value"),
        (
            RunEnded(**BASE, outcome="completed", usage=Usage(cost=math.inf)),
            "RunEnded.usage.cost",
        ),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_path_leads_into_parts_and_fields(record: Record, path: str) -> None:
    """Typed fields are checked like free values."""
    with pytest.raises(NotSerializableError) as caught:
        codec.encode(record)
    assert caught.value.path == path


def test_a_field_of_the_wrong_type_is_refused() -> None:
    """What could not be decoded again is not encoded."""
    with pytest.raises(NotSerializableError, match="author"):
        codec.encode(Message(**BASE, author=5, parts=()))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def _rename_who(raw: dict[str, Any]) -> dict[str, Any]:
    return {
        **{key: value for key, value in raw.items() if key != "who"},
        "by": raw["who"],
    }


def _add_reason(raw: dict[str, Any]) -> dict[str, Any]:
    return {**raw, "reason": "none given"}


def test_an_old_version_is_lifted_step_by_step() -> None:
    """A record of version 1 passes the upcasters 1 → 2 → 3 in order."""
    lifted = Codec({("CancelRequested", 1): _rename_who, ("CancelRequested", 2): _add_reason})
    body = b'{"type":"CancelRequested","id":"i","time":1.0,"cause":"user","who":"ann"}'
    assert lifted.decode(body) == CancelRequested(id="i", time=1.0, cause="user", by="ann", reason="none given", v=3)


def test_a_new_record_carries_the_current_version() -> None:
    """A writer need not know the version: encoding sets it, and reading does not lift it again."""
    lifted = Codec({("CancelRequested", 1): _add_reason})
    body = lifted.encode(CancelRequested(id="i", time=1.0, cause="user", reason="mine"))
    assert lifted.decode(body) == CancelRequested(id="i", time=1.0, cause="user", reason="mine", v=2)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"type":"Teleported","id":"i","time":1.0}', "unknown"),
        (b'{"type":"Rewound","id":"i","time":1.0,"to":1,"v":2}', "newer"),
        (b'{"type":"Rewound","id":"i","time":1.0}', "malformed"),
        (b'{"type":"Rew', "malformed"),
        (b"[1]", "malformed"),
        (b"\x00\x00\x00", "malformed"),
        (b'{"type":"Rewound","id":"\xff","time":1.0,"to":1}', "malformed"),
    ],
)
def test_a_record_that_cannot_be_read_is_a_typed_error(body: bytes, problem: str) -> None:
    """Unknown types and newer versions are told apart from damage."""
    with pytest.raises(RecordFormatError, match=problem):
        codec.decode(body)


def test_unknown_fields_of_the_same_version_are_ignored() -> None:
    """A newer program may have added a field with a default; this one reads on."""
    body = b'{"type":"Rewound","id":"i","time":1.0,"to":1,"colour":"red"}'
    assert codec.decode(body) == Rewound(id="i", time=1.0, to=1)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for one in SAMPLES:
        target = GOLDEN / f"{type(one).__name__}.json"
        if not target.exists():
            target.write_bytes(codec.encode(one))
