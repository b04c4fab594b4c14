"""What the runtime itself sends needs no repair: the projection is valid by construction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from tests.core.strategies import AGENTS, grammatical_logs
from tests.models import grammar

from heaveto import ModelProfile, Record, project, repair
from heaveto.core.request import ModelRequest
from heaveto.models.wire import anthropic, gemini, openai_chat, openai_responses

ENCODERS: dict[str, Any] = {
    "openai": openai_chat.encode,
    "openai-responses": openai_responses.encode,
    "anthropic": anthropic.encode,
    "gemini": gemini.encode,
}


@pytest.mark.parametrize("provider", ENCODERS)
@given(request=grammar.requests)
def test_encoded_requests_come_back_as_the_same_object(provider: str, request: ModelRequest) -> None:
    """Weird ids and names, empty texts, attachments, foreign data: repair of a body of ours is the identity (P1)."""
    body = ENCODERS[provider](request)
    repaired, report = repair(body, provider)
    assert repaired is body, str(report)


@pytest.mark.parametrize("provider", ENCODERS)
@given(records=grammatical_logs())
def test_projected_logs_come_back_as_the_same_object(provider: str, records: list[Record]) -> None:
    """Whatever a log holds, stops and late results included: each agent's request is repaired to itself (P1, F38)."""
    for agent in AGENTS:
        body = ENCODERS[provider](ModelRequest(turns=project(records, agent, ModelProfile(provider))))
        repaired, report = repair(body, provider)
        assert repaired is body, str(report)
