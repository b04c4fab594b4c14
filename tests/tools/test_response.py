"""Return values as JSON objects."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import pathlib
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heaveto.errors import NotSerializableError
from heaveto.tools.response import to_response


@dataclass
class Point:
    x: float
    y: Any = None


class Order(pydantic.BaseModel):
    number: int
    at: datetime.datetime


class Price(msgspec.Struct):
    amount: decimal.Decimal


class Colour(enum.Enum):
    RED = "red"


DAY = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "response"),
    [
        (None, {}),
        ({}, {}),
        ({"a": 1}, {"a": 1}),
        ("text", {"result": "text"}),
        (0, {"result": 0}),
        (False, {"result": False}),
        ([1, None], {"result": [1, None]}),
        ((1, (2,)), {"result": [1, [2]]}),
        ({1: "a"}, {"1": "a"}),
        (Point(1.5), {"x": 1.5, "y": None}),
        ([Point(1.5, Colour.RED)], {"result": [{"x": 1.5, "y": "red"}]}),
        (Order(number=1, at=DAY), {"number": 1, "at": "2026-01-02T00:00:00Z"}),
        (Price(decimal.Decimal("1.10")), {"amount": "1.10"}),
        (b"\x00\xff", {"result": "AP8="}),
        (DAY, {"result": "2026-01-02T00:00:00Z"}),
        (uuid.UUID(int=1), {"result": "00000000-0000-0000-0000-000000000001"}),
        (pathlib.PurePosixPath("/a"), {"result": "/a"}),
        (2**64 - 1, {"result": 2**64 - 1}),
    ],
)
def test_values_become_json_objects(value: Any, response: dict[str, Any]) -> None:
    """What is an object in JSON is the response; everything else is its result."""
    assert to_response(value) == response


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "result"),
        ({"a": [0, math.nan]}, "result.a[1]"),
        ({"a": {"b c": math.inf}}, "result.a['b c']"),
        ([Point(1, object())], "result[0].y"),
        (Point(math.nan), "result.x"),
        (Price(amount=object()), "result.amount"),  # type: ignore[arg-type]
        (["a", "\ud800"], "result[1]"),
        ((n for n in "ab"), "result"),
        (CIRCLE, "result"),
        ({"a": 10**30}, "result.a"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_path(value: Any, path: str) -> None:
    """The error names the innermost value that is at fault."""
    with pytest.raises(NotSerializableError) as caught:
        to_response(value)
    assert caught.value.path == path


def test_the_response_shares_nothing_with_the_value() -> None:
    """A tool that goes on changing its value does not change what was recorded."""
    value = {"rows": [1]}
    response = to_response(value)
    value["rows"].append(2)
    assert response == {"rows": [1]}


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values, max_size=4))
def test_json_objects_pass_unchanged(value: dict[str, Any]) -> None:
    """A JSON object is its own response, and survives the log's encoding."""
    response = to_response(value)
    assert response == value
    assert msgspec.json.decode(msgspec.json.encode(response)) == response
