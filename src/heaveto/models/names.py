"""Models by name: ``anthropic:claude-…``. What stands before the first colon says which connector is meant."""

from __future__ import annotations

from importlib import import_module

from heaveto.errors import ConfigError, UnknownConnectorError
from heaveto.models.base import Model

_HOMES = {
    "openai": ("heaveto.models.openai_responses", "OpenAIResponses"),
    "openai-chat": ("heaveto.models.openai_chat", "OpenAIChat"),
    "anthropic": ("heaveto.models.anthropic_messages", "AnthropicMessages"),
    "google": ("heaveto.models.gemini", "Gemini"),
    "litellm": ("heaveto.models.litellm", "LiteLLM"),
}
_ALIASES = {"openai-responses": "openai", "gemini": "google"}


def model_named(name: str) -> Model:
    """Return the model with a name such as ``anthropic:claude-opus-5``, with all settings at their defaults.

    Nothing is imported of its SDK, and nothing is sent, before the first request. Keys come from the environment.

    Raises:
        UnknownConnectorError: there is no connector of this name, or none was named; lists those there are.
        ConfigError: no model is named behind the colon.
    """
    connector, colon, model = name.partition(":")
    home = _HOMES.get(_ALIASES.get(connector, connector))
    if not colon or home is None:
        raise UnknownConnectorError(name, connectors())
    if not model.strip():
        raise ConfigError(f"model {name!r}: name the model behind the colon")
    module, kind = home
    made: Model = getattr(import_module(module), kind)(model)
    return made


def connectors() -> tuple[str, ...]:
    """Return what may stand before the colon, without aliases."""
    return tuple(_HOMES)
