"""Calls and results in a request as providers take them. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from google.genai.types import Content
from msgspec.structs import replace

from heaveto.adk.complete import Texts
from heaveto.core.repair import Change
from heaveto.histories.profiles import profile_named
from heaveto.histories.repairing import options_of, repair_messages

_PROFILE = replace(profile_named("gemini"), signatures="never", ends_with_user=False)
"""Models of all providers get these contents, so no signature is invented; google-adk sees to the end itself."""


class Whole(NamedTuple):
    """The contents, the same list if nothing was wrong; and what was changed."""

    contents: list[Content]
    changes: tuple[Change, ...]


def made_whole(contents: list[Content], texts: Texts) -> Whole:
    """Repair contents if a look at them finds something wrong (S3 to S18)."""
    if is_whole(contents):
        return Whole(contents, ())
    done = repair_messages(contents, _PROFILE, options_of(texts=texts))
    return Whole([_content(item) for item in done.messages], tuple(done.changes))


def is_whole(contents: Sequence[Content]) -> bool:
    """Whether each content with calls is followed by one with as many results, and by nothing else (G1 to G4, G9)."""
    calls, behind_model = 0, True
    for content in contents:
        asked, answered, size = _count(content)
        if answered != calls or (answered and answered != size) or (asked and behind_model) or not size:
            return False
        calls, behind_model = asked, content.role == "model"
    return calls == 0


def _count(content: Content) -> tuple[int, int, int]:
    """Return how many calls, results and parts there are."""
    parts = content.parts or ()
    asked = sum(part.function_call is not None for part in parts)
    return asked, sum(part.function_response is not None for part in parts), len(parts)


def _content(item: Any) -> Content:
    """Return what the repair made in the SDK's type; by way of JSON, in which bytes stand as base64."""
    return item if isinstance(item, Content) else Content.model_validate_json(json.dumps(item))
