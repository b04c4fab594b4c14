"""Turns that keep the grammar of requests, with everything in them that a log may hold."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import strategies as st

from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.events.contents import (
    Blob,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
)

texts = st.one_of(st.just(""), st.just(" \n"), st.text(max_size=12))
ids = st.one_of(
    st.text(max_size=90),
    st.just("toolu_01A"),
    st.from_regex(r"call_[A-Za-z0-9]{24}", fullmatch=True),
    st.just("a.b:c/é"),
)
names = st.one_of(st.text(max_size=90), st.just("mcp.server/tool"), st.just("2fa"), st.just("refund"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
objects = st.dictionaries(st.one_of(st.text(max_size=5), st.just("$ref")), json_values, max_size=3)
mime_types = st.sampled_from(
    ["image/png", "image/bmp", "application/pdf", "audio/wav", "text/plain", "application/x", ""]
)
foreign = st.fixed_dictionaries(
    {
        "provider": st.sampled_from(["", "cohere", "bedrock"]),
        "data": st.none() | st.fixed_dictionaries({"type": st.text()}),
    }
)
image_block = st.builds(
    lambda content: {"type": "image", "data": base64.b64encode(content).decode(), "mimeType": "image/png"},
    st.binary(max_size=4),
)
responses = st.one_of(
    objects, st.builds(lambda blocks: {"content": blocks}, st.lists(image_block | json_values, max_size=3))
)


def _with(kind: Any, extra: st.SearchStrategy[dict[str, Any]], **fields: Any) -> st.SearchStrategy[Any]:
    return st.builds(lambda more, values: kind(**values, **more), extra, st.fixed_dictionaries(fields))


blobs = _with(Blob, foreign, mime_type=mime_types, content=st.binary(max_size=5))
files = _with(
    FileRef, foreign, uri=st.sampled_from(["https://x/y.png", "gs://b/c", "file:///etc", ""]), mime_type=mime_types
)
user_parts = st.lists(st.one_of(_with(Text, foreign, text=texts), blobs, files), max_size=3)
signed = st.builds(
    lambda text, provider: Thought(text=text, signature="c2ln", provider=provider),
    texts,
    st.sampled_from(["anthropic", "gemini", "openai", "cohere"]),
)
model_parts = st.lists(
    st.one_of(
        _with(Text, foreign, text=texts),
        _with(Thought, foreign, text=texts),
        signed,
        blobs,
        files,
        _with(ProviderCall, foreign, id=ids, name=names),
        _with(ProviderResult, foreign, id=ids),
        _with(Opaque, foreign),
    ),
    max_size=3,
)


@st.composite
def turns(draw: st.DrawFn) -> list[Turn]:
    """The first turn is the user's, calls are answered at once, the last turn is not the model's."""
    made = [Turn("user", tuple(draw(user_parts)))]
    used: set[str] = set()
    for _ in range(draw(st.integers(0, 4))):
        calls = _calls(draw, used)
        parts: list[Part] = [*draw(model_parts), *calls]
        made.append(Turn("model", tuple(draw(st.permutations(parts)))))
        ordered = [part for part in made[-1].parts if isinstance(part, FunctionCall)]
        if calls:
            made.append(Turn("tool", tuple(_response(draw, call) for call in ordered)))
        if not calls or draw(st.booleans()):
            made.append(Turn("user", tuple(draw(user_parts))))
    return made


def _calls(draw: st.DrawFn, used: set[str]) -> list[FunctionCall]:
    calls: list[FunctionCall] = []
    for call_id in draw(st.lists(ids, max_size=3)):
        if call_id in used:
            continue
        used.add(call_id)
        defect = draw(st.sampled_from(["", "truncated", "invalid"]))
        raw = '{"a' if defect else None
        calls.append(
            FunctionCall(
                call_id=call_id, name=draw(names), args=draw(objects), raw_args=raw, defect=defect, **draw(foreign)
            )
        )
    return calls


def _response(draw: st.DrawFn, call: FunctionCall) -> FunctionResponse:
    is_error = draw(st.booleans())
    return FunctionResponse(call_id=call.call_id, name=call.name, response=draw(responses), is_error=is_error)


tools = st.lists(
    st.builds(ToolDeclaration, st.just("refund"), texts, st.just({"type": "object", "properties": {}})), max_size=1
).map(tuple)
generations = st.builds(
    Generation,
    temperature=st.none() | st.just(0.5),
    max_output_tokens=st.none() | st.just(100),
    stop=st.sampled_from([(), ("END",)]),
    tool_choice=st.sampled_from([None, "auto", "none", "required"]),
)
requests = st.builds(
    lambda turns, instruction, tools, generation: ModelRequest(
        turns=turns, instruction=instruction, tools=tools, generation=generation
    ),
    turns(),
    texts,
    tools,
    generations,
)
