"""Gemini and LiteLLM keep the contract of connectors, each as far as it can."""

from __future__ import annotations

import pytest

from heaveto.errors import ModelError
from heaveto.events.contents import Blob, FileRef, Opaque, Part, ProviderCall, ProviderResult, Text, Thought
from heaveto.models.base import Model
from heaveto.models.gemini import Gemini
from heaveto.models.litellm import LiteLLM
from heaveto.testing.emulator import Emulator
from heaveto.testing.model_contract import ModelContract, ask
from heaveto.testing.script import say

THOUGHT = {"text": "deep", "thought": True, "thoughtSignature": "dGhvdWdodA=="}
CODE = {"executableCode": {"language": "PYTHON", "code": "1+1", "unknown": [1]}, "thoughtSignature": "c2ln+/=="}
RAN = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}
SEARCH = {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["ü"]}}}
FOUND = {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"results": []}}}
SIGNED = {"text": "It is so.", "thoughtSignature": "-_8=", "unknown": {"kept": True}}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "AAEC"}, "thoughtSignature": "aW1hZ2U="}
FILE = {"fileData": {"fileUri": "gs://b/c.mp4", "mimeType": "video/mp4"}}
LAST = {"text": "", "thoughtSignature": "ZW5k"}


class TestGemini(ModelContract):
    """With all kinds of parts."""

    signature = "c2ln+/=="
    verbatim: tuple[Part, ...] = (
        Thought(text="deep", signature="dGhvdWdodA==", provider="gemini", data=THOUGHT),
        ProviderCall(id="1", name="code_execution", provider="gemini", data=CODE),
        ProviderResult(id="1", provider="gemini", data=RAN),
        ProviderCall(id="t1", name="google_search_web", provider="gemini", data=SEARCH),
        ProviderResult(id="t1", provider="gemini", data=FOUND),
        Text(text="It is so.", provider="gemini", data=SIGNED),
        Blob(mime_type="image/png", content=b"\0\1\2", provider="gemini", data=IMAGE),
        FileRef(uri="gs://b/c.mp4", mime_type="video/mp4", provider="gemini", data=FILE),
        Opaque(provider="gemini", data=LAST),
    )

    def connect(self, emulator: Emulator) -> Model:
        return Gemini("gemini-3-pro", api_key="k", base_url=emulator.google_url)


class TestGeminiWhole(TestGemini):
    """The same, asked for whole answers."""

    streams = False

    def connect(self, emulator: Emulator) -> Model:
        return Gemini("gemini-3-pro", api_key="k", base_url=emulator.google_url, stream=False)


@pytest.mark.filterwarnings("ignore")
class TestLiteLLM(ModelContract):
    """OpenAI's API by way of LiteLLM: the contract but for the two tests below, which say how it is instead."""

    @pytest.fixture(autouse=True)
    def offline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")

    def connect(self, emulator: Emulator) -> Model:
        return LiteLLM("openai/m", api_key="k", base_url=emulator.openai_url)

    async def test_nobody_listening_is_a_retryable_error(self) -> None:
        """LiteLLM makes a status up."""
        async with Emulator() as emulator:
            model = self.connect(emulator)
        with pytest.raises(ModelError) as error:
            await ask(model)
        assert (error.value.status, error.value.retryable) == (500, True)

    async def test_closing_twice_does_no_harm_and_closes_the_connections(self) -> None:
        """Twice does no harm; the connections are LiteLLM's, and stay."""
        async with self.connected(say("a")) as (model, emulator):
            await ask(model)
            await model.aclose()
            await model.aclose()
            assert emulator.open_connections == 1
