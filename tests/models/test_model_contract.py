"""Every connector keeps the contract, asking with a stream and without one."""

from __future__ import annotations

from heaveto.events.contents import Opaque, ProviderCall, ProviderResult, Text, Thought
from heaveto.models.anthropic_messages import AnthropicMessages
from heaveto.models.base import Model
from heaveto.models.openai_chat import OpenAIChat
from heaveto.models.openai_responses import OpenAIResponses
from heaveto.testing.emulator import Emulator
from heaveto.testing.model_contract import ModelContract

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ü"}, "caller": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "+/=="}]}
CITED = {"type": "text", "text": "It is so.", "citations": [{"type": "web_search_result_location", "url": "x"}]}
THOUGHT = {"type": "thinking", "thinking": "deep", "signature": "c2ln+/==", "unknown": {"kept": True}}
HIDDEN = {"type": "redacted_thinking", "data": "b3BhcXVl+/=="}
REASONING = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "deep", "unknown": {"kept": True}}],
    "encrypted_content": "c2ln+/==",
}
WEB_SEARCH = {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "ü"}}
SUMMARY = {"type": "compaction", "encrypted_content": "b3BhcXVl+/=="}
UNKNOWN = {"type": "of_next_year", "things": [1, {"two": None}]}


class TestOpenAIChat(ModelContract):
    """Chat Completions: it signs nothing."""

    def connect(self, emulator: Emulator) -> Model:
        return OpenAIChat("m", base_url=emulator.openai_url)


class TestOpenAIChatWhole(ModelContract):
    """The same, asked for whole answers."""

    streams = False

    def connect(self, emulator: Emulator) -> Model:
        return OpenAIChat("m", base_url=emulator.openai_url, stream=False)


class TestOpenAIResponses(ModelContract):
    """Responses: what goes back has no ids of stored items, so these have none."""

    signature = "c2ln+/=="
    verbatim = (
        Thought(text="deep", signature="c2ln+/==", provider="openai-responses", data=REASONING),
        Opaque(provider="openai-responses", data=WEB_SEARCH),
        Opaque(provider="openai-responses", data=SUMMARY),
    )

    def connect(self, emulator: Emulator) -> Model:
        return OpenAIResponses("m", base_url=emulator.openai_url)


class TestOpenAIResponsesWhole(TestOpenAIResponses):
    """The same, asked for whole answers."""

    streams = False

    def connect(self, emulator: Emulator) -> Model:
        return OpenAIResponses("m", base_url=emulator.openai_url, stream=False)


class TestOpenAIResponsesHeld(TestOpenAIResponses):
    """The same, where the provider is to hold the answers: these conversations are none of a session's log."""

    def connect(self, emulator: Emulator) -> Model:
        return OpenAIResponses("m", base_url=emulator.openai_url, held=True)


class TestAnthropicMessages(ModelContract):
    """Anthropic Messages, with all kinds of blocks."""

    signature = "c2ln+/=="
    verbatim = (
        Thought(text="deep", signature="c2ln+/==", provider="anthropic", data=THOUGHT),
        Opaque(provider="anthropic", data=HIDDEN),
        ProviderCall(id="srvtoolu_1", name="web_search", provider="anthropic", data=SEARCH),
        ProviderResult(id="srvtoolu_1", provider="anthropic", data=FOUND),
        Text(text="It is so.", provider="anthropic", data=CITED),
        Opaque(provider="anthropic", data=UNKNOWN),
    )

    def connect(self, emulator: Emulator) -> Model:
        return AnthropicMessages("m", base_url=emulator.anthropic_url)


class TestAnthropicMessagesWhole(TestAnthropicMessages):
    """The same, asked for whole answers."""

    streams = False

    def connect(self, emulator: Emulator) -> Model:
        return AnthropicMessages("m", base_url=emulator.anthropic_url, stream=False)
