"""Prompt caching: how much of a prompt was in an earlier one. Pure but for its memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from heaveto.events.contents import Json
from heaveto.testing.emulator.dialects.base import tokens


class PromptCache:
    """Remembers prompts, for each model its own. There is no least length, and nothing expires."""

    def __init__(self) -> None:
        self._known: dict[str, list[list[bytes]]] = {}

    def cached_tokens(self, model: str, prompt: Sequence[Json]) -> int:
        """Return how many tokens the longest prefix has that an earlier prompt had too, and remember this one."""
        encoded = [msgspec.json.encode(item) for item in prompt]
        known = self._known.setdefault(model, [])
        longest = max((_common(encoded, other) for other in known), default=0)
        known.append(encoded)
        return sum(tokens(item) for item in prompt[:longest])


def _common(one: list[bytes], other: list[bytes]) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length
