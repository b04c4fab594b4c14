"""Which provider's API the demo speaks, through that provider's official SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heaveto.models.base import Model


@dataclass(frozen=True, slots=True)
class Provider:
    """An API: its name for readers, the module of its SDK, and how a model is made, given the server's origin."""

    title: str
    sdk: str
    connect: Callable[[str], Model]


def _openai_chat(origin: str) -> Model:
    from heaveto.models.openai_chat import OpenAIChat

    return OpenAIChat("demo-model", base_url=f"{origin}/v1", api_key="none")


def _openai_responses(origin: str) -> Model:
    from heaveto.models.openai_responses import OpenAIResponses

    return OpenAIResponses("demo-model", base_url=f"{origin}/v1", api_key="none")


def _anthropic(origin: str) -> Model:
    from heaveto.models.anthropic_messages import AnthropicMessages

    return AnthropicMessages("demo-model", base_url=origin, api_key="none")


def _gemini(origin: str) -> Model:
    from heaveto.models.gemini import Gemini

    return Gemini("gemini-demo", base_url=origin, api_key="none")


PROVIDERS: Mapping[str, Provider] = {
    "openai-chat": Provider("OpenAI Chat Completions", "openai", _openai_chat),
    "openai": Provider("OpenAI Responses", "openai", _openai_responses),
    "anthropic": Provider("Anthropic Messages", "anthropic", _anthropic),
    "google": Provider("Gemini generateContent", "google.genai", _gemini),
}
"""By the names that model names begin with."""
