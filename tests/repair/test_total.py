"""Whatever is in a message: a repair repairs it, or says which message has not the shape of the format."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from tests.repair.shapes import WRITERS

from heaveto import Repairer, repair
from heaveto.errors import InvalidHistoryError

_EACH = 1_500 if os.environ.get("CI") else 300
_WORDS = ("", " ", "x", "c1", "a.b:c", '{"a', "{}", None, 0, True, [], {}, ["x"], [{}], [{"type": "text", "text": "x"}])
_KEYS = (
    "type", "text", "id", "name", "input", "content", "tool_use_id", "is_error", "call_id", "output", "arguments",
    "function", "functionCall", "functionResponse", "function_call", "args", "response", "thoughtSignature", "toolUse",
    "toolResult", "toolUseId", "reasoningContent", "signature", "thinking", "tool_call_id", "tool_calls", "parts",
    "summary", "encrypted_content",
)  # fmt: skip
_ROLES = ("user", "assistant", "model", "tool", "system", "developer", "function", None, 5)
_TYPES = (
    "text", "tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result",
    "function", "custom", "function_call", "function_call_output", "reasoning", "item_reference", "local_shell_call",
    "local_shell_call_output", "custom_tool_call", "custom_tool_call_output", "message", "computer_call", "image_url",
)  # fmt: skip


def _anything(chance: random.Random, depth: int) -> Any:
    if depth == 0 or chance.random() < 0.4:
        return chance.choice(_WORDS)
    if chance.random() < 0.4:
        return [_object(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    return _object(chance, depth - 1)


def _object(chance: random.Random, depth: int) -> dict[str, Any]:
    made = {chance.choice(_KEYS): _anything(chance, depth) for _ in range(chance.randint(0, 5))}
    if chance.random() < 0.7:
        made["type"] = chance.choice(_TYPES)
    return made


@pytest.mark.parametrize("provider", WRITERS)
def test_garbage_is_repaired_or_refused_with_its_place(provider: str) -> None:
    """No other error leaves it, whatever stands where; and the input stays as it was (F04)."""
    refused = 0
    for seed in range(_EACH):
        chance = random.Random(seed)
        history = [{**_object(chance, 3), "role": chance.choice(_ROLES)} for _ in range(chance.randint(1, 6))]
        before = repr(history)
        try:
            repaired, _ = repair(history, provider)
            assert repair(repaired, provider)[0] is repaired, seed
            assert Repairer(provider).repair(history)[0] == repaired, seed
        except InvalidHistoryError:
            refused += 1
        assert repr(history) == before
    assert refused < _EACH
