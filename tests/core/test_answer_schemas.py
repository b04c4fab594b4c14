"""Schemas of answers may come from a model: what they refer to is not fetched, and one that is none accepts nothing."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest

from heaveto.core.answers import answer_problem

REMOTE = "http://schemas.invalid/secret.json"


def test_a_schema_that_refers_to_an_address_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever writes the schema has the process send requests, and waits for them in its event loop."""
    asked: list[Any] = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda *given, **_: asked.append(given))
    problem = answer_problem("yes", {"$ref": REMOTE})
    assert problem is not None
    assert problem.startswith("its schema cannot be used")
    assert asked == []


def test_references_within_a_schema_are_followed() -> None:
    """They need nothing from elsewhere."""
    schema = {"$defs": {"size": {"enum": ["s", "m"]}}, "properties": {"size": {"$ref": "#/$defs/size"}}}
    assert answer_problem({"size": "s"}, schema) is None
    assert answer_problem({"size": "x"}, schema) == "$.size: 'x' is not one of ['s', 'm']"


@pytest.mark.parametrize("schema", [{"type": 5}, {"pattern": "("}, {"$ref": "#/nowhere"}, {"enum": 3}])
def test_what_is_no_schema_accepts_nothing(schema: dict[str, Any]) -> None:
    """The question stays open, and a no still answers it."""
    problem = answer_problem("yes", schema)
    assert problem is not None
    assert problem.startswith("its schema cannot be used")
