"""OpenAI Responses: how requests are judged and answers look. Pure but for the memory of `HeldResponses`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from heaveto.core.validate import Violation, openai_responses
from heaveto.events.contents import Json
from heaveto.testing.emulator.dialects.base import Answer, Asked, Body, Opening, listed
from heaveto.testing.emulator.dialects.openai import OpenAIDialect, openai_error
from heaveto.testing.emulator.dialects.responses_answer import ResponsesAnswer
from heaveto.testing.emulator.held import HeldResponses, input_items


class OpenAIResponsesDialect(OpenAIDialect):
    """POST /v1/responses, with what the provider holds between requests."""

    api = "openai-responses"

    def __init__(self, rules: Mapping[str, Any], held: HeldResponses) -> None:
        super().__init__(rules)
        self.held = held

    def violation(self, asked: Asked) -> Violation | None:
        """Judge what was sent, then the whole conversation that it goes on with (R1, R3, R7, R11, R12)."""
        body = asked.body
        if body.get("background") and body.get("store") is False:
            words = "Background mode requires store to be true."
            return Violation("schema", 400, openai_error(400, words, param="background"), unconfirmed=True)
        before = self.held.context(body)
        if isinstance(before, Violation):
            return before
        items = input_items(body)
        if not all(isinstance(item, dict) for item in items):  # pyright: ignore[reportUnnecessaryIsInstance]
            return openai_responses.validate(body, **self.rules)
        sent = self.held.resolved(items)
        if isinstance(sent, Violation):
            return sent
        return openai_responses.validate(
            {**body, "input": sent}, chain=before, known_items=self.held.item_ids(), **self.rules
        )

    def answer(self, opening: Opening) -> Answer:
        return ResponsesAnswer(opening)

    def answered(self, asked: Asked, answer: Body) -> None:
        if asked.body.get("store") is not False:
            self.held.keep(asked.body, answer)

    def prompt(self, asked: Asked) -> list[Json]:
        body = asked.body
        before = self.held.context(body)
        known = cast("list[Json]", before) if isinstance(before, list) else []
        return [*listed(body.get("tools")), *listed(body.get("instructions")), *known, *input_items(body)]
