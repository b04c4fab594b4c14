"""Request bodies for Gemini generateContent, as REST takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never, cast

from heaveto.core.request import ModelRequest, Turn
from heaveto.core.wire_names import NO_SIGNATURE, NOTHING, gemini_name
from heaveto.events.contents import (
    Blob,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Json,
    Part,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
)
from heaveto.models.wire.fields import (
    base64_text,
    described,
    json_text,
    own_data,
    sendable_text,
    split_images,
    with_extra,
)
from heaveto.models.wire.memory import TurnMemory

Content = dict[str, Any]
_CHOICES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_NOTHING = {"text": NOTHING}


class GeminiEncoder:
    """Encodes requests, remembering the turns it has seen.

    Results stand alone in their content; what the user says next is a content of its own (G9). With `signatures`
    (Gemini 3 and later) the first call of each step of the current turn has its real signature, or the stand-in.

    A part that this provider made goes back as it came: in its place, with everything that it carried (F26, F27), ids
    included, which are free here (G14). Unsigned thoughts are for display and stay out.

    `provider_tools` are declared beside the functions.
    """

    def __init__(
        self, *, provider: str = "gemini", signatures: bool = True, provider_tools: Sequence[dict[str, Json]] = ()
    ) -> None:
        self._provider, self._signatures, self._provider_tools = provider, signatures, list(provider_tools)
        self._memory = TurnMemory(self._encode_turn)

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request body without the model. Its contents are shared: do not change them."""
        contents: list[Content] = []
        for turn in request.turns:
            contents += self._memory.form(turn) or _stand_in(turn, contents)
        if self._signatures:
            _sign_current_turn(contents)
        body: dict[str, Any] = {"contents": contents or [{"role": "user", "parts": [_NOTHING]}]}
        if sendable_text(request.instruction):
            body["systemInstruction"] = {"parts": [{"text": request.instruction}]}
        tools = [*_functions(request), *self._provider_tools]
        return {**body, **({"tools": tools} if tools else {}), **_settings(request)}

    def _encode_turn(self, turn: Turn) -> list[Content]:
        match turn.role:
            case "user":
                return _content("user", [block for part in turn.parts if (block := self._said(part)) is not None])
            case "model":
                return _content("model", [block for part in turn.parts if (block := self._made(part)) is not None])
            case "tool":
                return _result_contents(turn.responses)
            case _:
                assert_never(turn.role)

    def _said(self, part: Part) -> Content | None:
        match part:
            case Text(text=text):
                return {"text": text} if sendable_text(text) else None
            case Blob():
                return _inline(part)
            case FileRef(uri=uri, mime_type=mime_type) if mime_type and uri.startswith(("https://", "gs://")):
                return {"fileData": {"fileUri": uri, "mimeType": mime_type}}
            case FileRef():
                return {"text": described(part).text}
            case _:
                return None

    def _made(self, part: Part) -> Content | None:
        own = own_data(part, self._provider)
        match part:
            case FunctionCall():
                unknown = own.get("functionCall")
                more: Content = cast("Content", unknown) if isinstance(unknown, dict) else {}
                call = {**more, "id": part.call_id, "name": gemini_name(part.name), "args": part.args}
                return {**own, "functionCall": call}
            case Text(text=text):
                return {**own, "text": text} if sendable_text(text) else None
            case Thought(text=text) if own:
                return {**own, "text": text}
            case Blob() if part.provider == self._provider:
                return {**own, **_inline(part)}
            case Blob() | FileRef() if not own:
                return {"text": described(part).text}
            case ProviderCall() if "toolCall" in own and not self._signatures:
                return None  # G17: older models refuse calls that newer ones had the provider execute
            case ProviderResult() if "toolResponse" in own and not self._signatures:
                return None
            case _:
                return own or None


def encode(request: ModelRequest, *, provider: str = "gemini", signatures: bool = True) -> dict[str, Any]:
    """Return the body of one request, remembering nothing."""
    return GeminiEncoder(provider=provider, signatures=signatures).encode(request)


def _content(role: str, parts: list[Content]) -> list[Content]:
    return [{"role": role, "parts": parts}] if parts else []


def _stand_in(turn: Turn, contents: list[Content]) -> list[Content]:
    """A model turn without content vanishes; a user turn must be there, unless results stand where it would (G6)."""
    if turn.role == "model" or (contents and contents[-1]["role"] == "user"):
        return []
    return [{"role": "user", "parts": [_NOTHING]}]


def _sign_current_turn(contents: list[Content]) -> None:
    """Put the stand-in on unsigned first calls after the last content that the user wrote (G10)."""
    for place in range(len(contents) - 1, -1, -1):
        parts = contents[place]["parts"]
        if contents[place]["role"] == "user" and not any("functionResponse" in part for part in parts):
            return
        first = next((index for index, part in enumerate(parts) if "functionCall" in part), None)
        if first is not None and "thoughtSignature" not in parts[first]:
            signed = {**parts[first], "thoughtSignature": NO_SIGNATURE}
            contents[place] = {**contents[place], "parts": [*parts[:first], signed, *parts[first + 1 :]]}


def _inline(blob: Blob) -> Content:
    if not blob.mime_type:
        return {"text": described(blob).text}
    return {"inlineData": {"mimeType": blob.mime_type, "data": base64_text(blob.content)}}


def _result_contents(responses: tuple[FunctionResponse, ...]) -> list[Content]:
    results: list[Content] = []
    images: list[Content] = []
    for response in responses:
        value, found = split_images(response)
        images += [_inline(image) for image in found]
        result = {"id": response.call_id, "name": gemini_name(response.name), "response": _object(value)}
        results.append({"functionResponse": result})
    return _content("user", results) + _content("user", images)


def _object(response: dict[str, Json]) -> dict[str, Json]:
    """A ``$ref`` within a result would be read as a reference to a part (G16)."""
    text = json_text(response)
    return {"output": text} if '"$ref"' in text else response


def _functions(request: ModelRequest) -> list[dict[str, Any]]:
    tools = [
        {"name": gemini_name(tool.name), "description": tool.description, "parametersJsonSchema": tool.parameters}
        for tool in request.tools
    ]
    return [{"functionDeclarations": tools}] if tools else []


def _settings(request: ModelRequest) -> dict[str, Any]:
    generation = request.generation
    settings = {
        "temperature": generation.temperature,
        "topP": generation.top_p,
        "maxOutputTokens": generation.max_output_tokens,
        "stopSequences": list(generation.stop) or None,
        "seed": generation.seed,
        "responseMimeType": None if generation.output_schema is None else "application/json",
        "responseJsonSchema": generation.output_schema,
    }
    config = {name: value for name, value in settings.items() if value is not None}
    choice = generation.tool_choice if request.tools else None
    mode = None if choice is None else {"functionCallingConfig": {"mode": _CHOICES[choice]}}
    return with_extra({"generationConfig": config or None, "toolConfig": mode}, generation.extra)
