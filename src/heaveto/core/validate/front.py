"""One function in front of the validators of all formats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from heaveto.core.validate import anthropic, bedrock, gemini, minimax_messages, mistral, openai_chat, openai_responses
from heaveto.core.validate.chat_dialects import DEEPSEEK, KIMI, MINIMAX, QWEN
from heaveto.core.validate.responses_dialect import DEEPSEEK_RESPONSES
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_kinds import ALIASES
from heaveto.errors import UnknownFormatError


class _Format(msgspec.Struct, frozen=True):
    """Where a format keeps its history, who judges it, and with which options where there is only the list."""

    key: str
    validate: Callable[..., Violation | None]
    of_list: dict[str, Any] = {}


FORMATS = {
    "openai": _Format("messages", openai_chat.validate),
    "openai-responses": _Format("input", openai_responses.validate),
    "anthropic": _Format("messages", anthropic.validate, {"tools_known": False}),
    "gemini": _Format("contents", gemini.validate),
    "bedrock": _Format("messages", bedrock.validate, {"tools_known": False}),
    "mistral": _Format("messages", mistral.validate),
    "deepseek": _Format("messages", partial(openai_chat.validate, dialect=DEEPSEEK)),
    "deepseek-responses": _Format("input", partial(openai_responses.validate, dialect=DEEPSEEK_RESPONSES)),
    "kimi": _Format("messages", partial(openai_chat.validate, dialect=KIMI)),
    "qwen": _Format("messages", partial(openai_chat.validate, dialect=QWEN)),
    "minimax": _Format("messages", partial(openai_chat.validate, dialect=MINIMAX)),
    "minimax-anthropic": _Format("messages", minimax_messages.validate),
}
"""The formats by name."""


def validate(history: Any, provider: str, *, strict_unconfirmed: bool = False, **options: Any) -> Violation | None:
    """Return the first rule of a provider that a request breaks, with the provider's answer; None if it is accepted.

    Pure and total: any JSON value is judged, and nothing is changed. What the validators know is what public reports,
    documents and SDKs tell; a provider may refuse more.

    Args:
        history: a request body, or only the list in it: ``messages``, ``input`` or ``contents``. Of a bare list it is
            not judged whether tools are declared.
        provider: a format: "openai" (Chat Completions), "openai-responses", "anthropic", "gemini", "bedrock"
            (Converse), "mistral", "deepseek", "deepseek-responses", "kimi", "qwen", "minimax", "minimax-anthropic".
        strict_unconfirmed: judge the rules too that no public report confirms.
        options: of the format, such as ``prefill=True``: what depends on the model. The reference page lists them.

    Raises:
        UnknownFormatError: there is no such format.
    """
    name = str(provider)  # anything may come from callers without a type checker
    found = FORMATS.get(ALIASES.get(name, name))
    if found is None:
        raise UnknownFormatError(provider, [*FORMATS, *ALIASES])
    if isinstance(history, dict):
        return found.validate(history, strict_unconfirmed=strict_unconfirmed, **options)
    settings = {**found.of_list, **options}
    return found.validate({found.key: history}, strict_unconfirmed=strict_unconfirmed, **settings)
