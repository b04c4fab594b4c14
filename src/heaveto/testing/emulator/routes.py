"""Which request is for whom: the paths of all APIs, and what is answered without the script. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from heaveto.testing.emulator.dialects.anthropic import AnthropicDialect, anthropic_error
from heaveto.testing.emulator.dialects.base import Asked, Body, Dialect, tokens
from heaveto.testing.emulator.dialects.openai_chat import OpenAIChatDialect
from heaveto.testing.emulator.dialects.openai_errors import openai_error, openai_unknown_model

Looked: TypeAlias = tuple[int, Body]
"""A status and a body."""


@dataclass(frozen=True, slots=True)
class Generate:
    """A request for an answer of a model."""

    dialect: Dialect
    asked: Asked

    @property
    def api(self) -> str:
        return self.dialect.api


@dataclass(frozen=True, slots=True)
class Look:
    """A request that is answered at once, without the script."""

    api: str
    look: Callable[[], Looked]


Route: TypeAlias = Generate | Look
_Find: TypeAlias = Callable[[Asked], Route]
_CREATED = 1_750_000_000


class Routes:
    """Finds what to do with a request. The versions in paths may be left out, as some clients do."""

    def __init__(
        self,
        rules: Mapping[str, Mapping[str, Any]],
        models: Collection[str] | None,
        *,
        strict_unconfirmed: bool,
        call_ids: bool,
    ) -> None:
        def options(api: str) -> dict[str, Any]:
            return {"strict_unconfirmed": strict_unconfirmed, **rules.get(api, {})}

        self._models = sorted(models) if models is not None else ["emulated"]
        self._any_model = models is None
        self._chat = OpenAIChatDialect(options("openai"))
        self._anthropic = AnthropicDialect(options("anthropic"))
        self._table: list[tuple[str, re.Pattern[str], _Find]] = [
            (method, re.compile(pattern), find) for method, pattern, find in self._paths()
        ]

    def find(self, asked: Asked) -> Route:
        """Return what to do; for a wrong path, the 404 of the API that it seems to be meant for."""
        for method, pattern, find in self._table:
            match = pattern.fullmatch(asked.path)
            if match and method == asked.method:
                return find(replace(asked, names=match.groupdict()))
        return _lost(asked)

    def _paths(self) -> list[tuple[str, str, _Find]]:
        return [
            ("POST", r"(?:/v1)?/chat/completions", lambda asked: Generate(self._chat, asked)),
            ("POST", r"(?:/v1)?/messages", lambda asked: Generate(self._anthropic, asked)),
            ("POST", r"(?:/v1)?/messages/count_tokens", self._count_anthropic),
            ("GET", r"(?:/v1)?/models", self._list_models),
            ("GET", r"(?:/v1)?/models/(?P<model>[^:]+)", self._show_model),
        ]

    def _count_anthropic(self, asked: Asked) -> Route:
        def look() -> Looked:
            body = {"max_tokens": 1, **asked.body}
            broken = self._anthropic.violation(replace(asked, body=body))
            if broken is not None:
                return broken.status, broken.body
            return 200, {"input_tokens": sum(tokens(item) for item in self._anthropic.prompt(asked))}

        return Look("anthropic", look)

    def _list_models(self, asked: Asked) -> Route:
        if _is_anthropic(asked):
            found = [_anthropic_model(name) for name in self._models]
            ends = {"has_more": False, "first_id": self._models[0], "last_id": self._models[-1]} if found else {}
            return Look("anthropic", lambda: (200, {"data": found, **ends}))
        return Look("openai", lambda: (200, {"object": "list", "data": [_openai_model(name) for name in self._models]}))

    def _show_model(self, asked: Asked) -> Route:
        name = asked.names["model"]
        known = self._any_model or name in self._models
        if _is_anthropic(asked):
            return Look(
                "anthropic",
                lambda: (200, _anthropic_model(name)) if known else (404, self._anthropic.unknown_model(name)),
            )
        return Look("openai", lambda: (200, _openai_model(name)) if known else (404, openai_unknown_model(name)))


def _is_anthropic(asked: Asked) -> bool:
    return "anthropic-version" in asked.headers


def _openai_model(name: str) -> Body:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "emulator"}


def _anthropic_model(name: str) -> Body:
    return {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


def _lost(asked: Asked) -> Route:
    if _is_anthropic(asked):
        return Look("anthropic", lambda: (404, anthropic_error(404, "Not Found")))
    return Look("openai", lambda: (404, openai_error(404, f"Invalid URL ({asked.method} {asked.path})")))
