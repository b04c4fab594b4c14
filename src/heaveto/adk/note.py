"""What is told in words, because its place in the request cannot be found. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

from google.genai.types import Content, Part

from heaveto.adk.complete import Texts, stand_in


def with_note(contents: list[Content], pieces: Sequence[Sequence[Content]], texts: Texts) -> list[Content]:
    """Return the contents with a note on the answered calls of these pieces, beside the newest words of the user.

    Behind the last content where the user has no words in it. A note that is there already is not put there twice.
    """
    lines = [line for piece in pieces for line in _lines(piece, texts)]
    note = "\n".join(lines)
    if not lines or any(part.text == note for content in contents for part in content.parts or ()):
        return contents
    place = next((i for i in reversed(range(len(contents))) if _is_words_of_user(contents[i])), None)
    if place is None:
        return [*contents, Content(role="user", parts=[Part(text=note)])]
    changed = contents[place].model_copy(update={"parts": [*(contents[place].parts or ()), Part(text=note)]})
    return [*contents[:place], changed, *contents[place + 1 :]]


def _lines(piece: Sequence[Content], texts: Texts) -> Iterator[str]:
    """Yield a line for each call of a piece that got one of our results: these are complete and in call order."""
    known = (stand_in("unknown", texts), stand_in("pending", texts))
    for asked, answered in pairwise(piece):
        calls = [part.function_call for part in asked.parts or () if part.function_call]
        results = [part.function_response for part in answered.parts or () if part.function_response]
        for call, result in zip(calls, results, strict=False):
            if result.response in known:
                arguments = json.dumps(call.args or {}, ensure_ascii=False, sort_keys=True, default=str)
                answer = json.dumps(result.response, ensure_ascii=False)
                yield f"Note on your earlier call {call.name}({arguments}): {answer}"


def _is_words_of_user(content: Content) -> bool:
    parts = content.parts or []
    return content.role == "user" and bool(parts) and not any(part.function_response for part in parts)
