"""Models by name, and answers by schema, as an agent takes them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel

from heaveto.agents.llm import LlmAgent
from heaveto.core.request import Generation, ModelRequest, Turn
from heaveto.errors import ConfigError, UnknownConnectorError
from heaveto.events.contents import Text
from heaveto.models import names
from heaveto.models.anthropic_messages import AnthropicMessages
from heaveto.models.gemini import Gemini
from heaveto.models.litellm import LiteLLM
from heaveto.models.openai_chat import OpenAIChat
from heaveto.models.openai_responses import OpenAIResponses
from heaveto.models.wire import anthropic, gemini, openai_chat, openai_responses
from heaveto.models.wire.schema import closed_schema, is_strict_schema


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("anthropic:claude-opus-5", AnthropicMessages, "claude-opus-5"),
        ("openai-chat:gpt-5", OpenAIChat, "gpt-5"),
        ("openai-chat:ft:gpt-5:acme", OpenAIChat, "ft:gpt-5:acme"),
        ("openai:gpt-5", OpenAIResponses, "gpt-5"),
        ("openai-responses:gpt-5", OpenAIResponses, "gpt-5"),
        ("google:gemini-3-pro", Gemini, "gemini-3-pro"),
        ("gemini:gemini-3-pro", Gemini, "gemini-3-pro"),
        ("litellm:bedrock/x", LiteLLM, "bedrock/x"),
    ],
)
def test_a_name_stands_for_a_model(name: str, kind: type, model: str) -> None:
    """The connector stands before the first colon, the rest is the provider's own name."""
    agent = LlmAgent("root", name)
    assert (type(agent.model), agent.model.name) == (kind, model)


@pytest.mark.parametrize("name", ["claude-opus-5", "antropic:claude-opus-5", "", ":x", "Anthropic:x"])
def test_an_unknown_connector_is_told_with_those_there_are(name: str) -> None:
    """It is a mistake in the program, found where the agent is made."""
    with pytest.raises(UnknownConnectorError, match="anthropic:…") as error:
        LlmAgent("root", name)
    assert (error.value.name, error.value.known) == (name, names.connectors())


@pytest.mark.parametrize("name", ["antropic:claude-opus-5", "Anthropic:x", "anthropic/claude-opus-5"])
def test_a_typing_error_gets_what_may_be_meant(name: str) -> None:
    """The nearest name stands in the message."""
    with pytest.raises(UnknownConnectorError, match=r"did you mean 'anthropic:…'\?"):
        LlmAgent("root", name)


def test_a_connector_without_a_model_is_refused() -> None:
    """No provider has a model without a name."""
    with pytest.raises(ConfigError, match="behind the colon"):
        names.model_named("anthropic: ")


def test_names_import_no_sdk() -> None:
    """Not even that of the connector that is named."""
    program = (
        "import sys; from heaveto import LlmAgent; LlmAgent('root', 'anthropic:x');"
        "assert not {'anthropic', 'openai', 'google.genai', 'pydantic'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


class Line(BaseModel):
    item: str
    count: int


class Order(BaseModel):
    lines: list[Line]


ORDER = Order.model_json_schema()
OPEN: dict[str, Any] = {
    "type": "object",
    "properties": {"properties": {"type": "string"}, "more": {"type": "object", "default": {"properties": {}}}},
    "required": ["properties"],
}


def settings_of(encode: Any, schema: dict[str, Any], **extra: Any) -> dict[str, Any]:
    request = ModelRequest(
        turns=[Turn("user", (Text(text="hi"),))], generation=Generation(output_schema=schema, extra=extra)
    )
    body: dict[str, Any] = encode(request)
    return body


def test_a_schema_goes_out_in_every_providers_own_way() -> None:
    """Closed where that is wanted, strict where it can be."""
    closed = closed_schema(ORDER)
    strict = {"name": "answer", "schema": closed, "strict": True}
    chat = settings_of(openai_chat.encode, ORDER)
    assert chat["response_format"] == {"type": "json_schema", "json_schema": strict}
    responses = settings_of(openai_responses.encode, ORDER, text={"verbosity": "low"})
    assert responses["text"] == {"format": {"type": "json_schema", **strict}, "verbosity": "low"}
    messages = settings_of(anthropic.encode, ORDER)
    assert messages["output_config"] == {"format": {"type": "json_schema", "schema": closed}}
    contents = settings_of(gemini.encode, ORDER, generationConfig={"topK": 3})
    assert contents["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": ORDER,
        "topK": 3,
    }


def test_objects_are_closed_wherever_they_stand_and_nothing_else_is_touched() -> None:
    """Also within definitions; names of properties and defaults are no schemas, however they are called."""
    closed = closed_schema(ORDER)
    assert closed["additionalProperties"] is False
    assert closed["$defs"]["Line"]["additionalProperties"] is False
    assert "additionalProperties" not in ORDER["$defs"]["Line"]
    assert closed_schema(OPEN) == {**OPEN, "additionalProperties": False}
    assert closed_schema({**OPEN, "additionalProperties": True})["additionalProperties"] is True
    assert closed_schema({"anyOf": [OPEN]}) == {"anyOf": [{**OPEN, "additionalProperties": False}]}


@pytest.mark.parametrize(("schema", "strict"), [(ORDER, True), (OPEN, False), ({"type": "object"}, False)])
def test_strict_is_a_schema_whose_objects_need_all_they_name(schema: dict[str, Any], strict: bool) -> None:
    """OpenAI refuses others in strict mode, and takes them without it."""
    assert is_strict_schema(closed_schema(schema)) is strict


def test_an_agent_takes_a_schema_or_a_type() -> None:
    """Its other settings stay."""
    given = Generation(temperature=0.5)
    by_type = LlmAgent("root", "anthropic:x", output_schema=Order, generation=given)
    by_schema = LlmAgent("root", "anthropic:x", output_schema=ORDER)
    assert by_type.generation == Generation(temperature=0.5, output_schema=ORDER)
    assert by_schema.generation.output_schema == ORDER
    assert given.output_schema is None
