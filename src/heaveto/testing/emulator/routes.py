"""Which request is for whom: the paths of all APIs, and what is answered without the script. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from heaveto.testing.emulator.background import BackgroundJob
from heaveto.testing.emulator.dialects.anthropic import AnthropicDialect, anthropic_error
from heaveto.testing.emulator.dialects.base import Asked, Body, Dialect, tokens
from heaveto.testing.emulator.dialects.gemini import GeminiDialect, gemini_error
from heaveto.testing.emulator.dialects.openai import openai_error, openai_unknown_model
from heaveto.testing.emulator.dialects.openai_chat import OpenAIChatDialect
from heaveto.testing.emulator.dialects.openai_responses import OpenAIResponsesDialect
from heaveto.testing.emulator.held import HeldResponses, Looked


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


@dataclass(frozen=True, slots=True)
class Follow:
    """A request for the events of a response that is made in the background."""

    job: BackgroundJob
    after: int
    api: str = "openai-responses"


Route: TypeAlias = Generate | Look | Follow
_Find: TypeAlias = Callable[[Asked], Route]
_GOOGLE = r"/v1(?:beta\d?|alpha)?/(?:[\w./@-]*/)?(?:models|endpoints)/"
"""Paths of the Gemini API, and of Vertex with its projects and publishers."""
_CREATED = 1_750_000_000


class Routes:
    """Finds what to do with a request. The versions in paths may be left out, as some clients do."""

    def __init__(
        self,
        rules: Mapping[str, Mapping[str, Any]],
        models: Collection[str] | None,
        held: HeldResponses,
        *,
        chat: str,
        strict_unconfirmed: bool,
        strict_signatures: bool,
        call_ids: bool,
    ) -> None:
        def options(api: str) -> dict[str, Any]:
            return {"strict_unconfirmed": strict_unconfirmed, **rules.get(api, {})}

        self._models = sorted(models) if models is not None else ["emulated"]
        self._any_model = models is None
        self._chat = OpenAIChatDialect(options(chat), chat)
        self._responses = OpenAIResponsesDialect(options("openai-responses"), held)
        self._held = held
        self._anthropic = AnthropicDialect(options("anthropic"), strict_signatures=strict_signatures)
        self._gemini = GeminiDialect(options("gemini"), call_ids=call_ids, strict_signatures=strict_signatures)
        self._table: list[tuple[str, re.Pattern[str], _Find]] = [
            (method, re.compile(pattern), find) for method, pattern, find in [*self._paths(), *self._held_paths()]
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
            ("POST", _GOOGLE + r"(?P<model>[^/:]+):(?P<method>(?:streamG|g)enerateContent)", self._ask_gemini),
            ("POST", _GOOGLE + r"(?P<model>[^/:]+):countTokens", self._count_gemini),
            ("GET", r"/v1beta\d?/models", self._list_gemini),
            ("GET", r"/v1beta\d?/models/(?P<model>[^/:]+)", self._show_gemini),
            ("GET", r"(?:/v1)?/models", self._list_models),
            ("GET", r"(?:/v1)?/models/(?P<model>[^:]+)", self._show_model),
        ]

    def _held_paths(self) -> list[tuple[str, str, _Find]]:
        held = self._held
        response, conversation = r"(?:/v1)?/responses/(?P<id>[^/]+)", r"(?:/v1)?/conversations/(?P<id>[^/]+)"

        def at(look: Callable[[Asked], Looked]) -> _Find:
            return lambda asked: Look("openai-responses", lambda: look(asked))

        return [
            ("POST", r"(?:/v1)?/responses", lambda asked: Generate(self._responses, asked)),
            ("POST", r"(?:/v1)?/responses/input_tokens", at(self._count_responses)),
            ("GET", response, self._response),
            ("DELETE", response, at(lambda asked: held.delete(asked.names["id"]))),
            ("POST", response + "/cancel", at(lambda asked: held.cancel(asked.names["id"]))),
            ("GET", response + "/input_items", at(lambda asked: held.input_of(asked.names["id"], _order(asked)))),
            ("POST", r"(?:/v1)?/conversations", at(lambda asked: held.converse(asked.body))),
            ("GET", conversation, at(lambda asked: held.show_conversation(asked.names["id"]))),
            ("POST", conversation, at(lambda asked: held.relabel(asked.names["id"], asked.body))),
            ("DELETE", conversation, at(lambda asked: held.forget(asked.names["id"]))),
            ("POST", conversation + "/items", at(lambda asked: held.add_items(asked.names["id"], asked.body))),
            ("GET", conversation + "/items", at(lambda asked: held.list_items(asked.names["id"], _order(asked)))),
        ]

    def _response(self, asked: Asked) -> Route:
        stored = self._held.stored.get(asked.names["id"])
        if stored is not None and isinstance(stored.job, BackgroundJob) and asked.query.get("stream") == "true":
            after = asked.query.get("starting_after", "")
            return Follow(stored.job, int(after) if after.isdecimal() else -1)
        return Look("openai-responses", lambda: self._held.show(asked.names["id"]))

    def _count_responses(self, asked: Asked) -> Looked:
        broken = self._responses.violation(asked)
        if broken is not None:
            return broken.status, broken.body
        count = sum(tokens(item) for item in self._responses.prompt(asked))
        return 200, {"object": "response.input_tokens", "input_tokens": count}

    def _count_anthropic(self, asked: Asked) -> Route:
        def look() -> Looked:
            body = {"max_tokens": 1, **asked.body}
            broken = self._anthropic.violation(replace(asked, body=body))
            if broken is not None:
                return broken.status, broken.body
            return 200, {"input_tokens": sum(tokens(item) for item in self._anthropic.prompt(asked))}

        return Look("anthropic", look)

    def _ask_gemini(self, asked: Asked) -> Route:
        return Generate(self._gemini, asked)

    def _count_gemini(self, asked: Asked) -> Route:
        def look() -> Looked:
            body = asked.body.get("generateContentRequest") or asked.body
            count = sum(tokens(item) for item in self._gemini.prompt(replace(asked, body=body)))
            return 200, {"totalTokens": count, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": count}]}

        return Look("gemini", look)

    def _list_gemini(self, asked: Asked) -> Route:
        return Look("gemini", lambda: (200, {"models": [_google_model(name) for name in self._models]}))

    def _show_gemini(self, asked: Asked) -> Route:
        name = asked.names["model"]
        known = self._any_model or name in self._models
        return Look("gemini", lambda: (200, _google_model(name)) if known else (404, self._gemini.unknown_model(name)))

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


def _order(asked: Asked) -> str:
    return asked.query.get("order", "desc")


def _is_anthropic(asked: Asked) -> bool:
    return "anthropic-version" in asked.headers


def _openai_model(name: str) -> Body:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "emulator"}


def _anthropic_model(name: str) -> Body:
    return {"id": name, "type": "model", "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


def _google_model(name: str) -> Body:
    return {
        "name": f"models/{name}", "version": "001", "displayName": name, "inputTokenLimit": 1_048_576,
        "outputTokenLimit": 65_536, "supportedGenerationMethods": ["generateContent", "countTokens"],
    }  # fmt: skip


def _lost(asked: Asked) -> Route:
    if asked.path.startswith("/v1beta") or "x-goog-api-key" in asked.headers:
        return Look("gemini", lambda: (404, gemini_error(404, "Requested entity was not found.")))
    if _is_anthropic(asked):
        return Look("anthropic", lambda: (404, anthropic_error(404, "Not Found")))
    return Look("openai", lambda: (404, openai_error(404, f"Invalid URL ({asked.method} {asked.path})")))
