"""What it costs to send one more message of a long conversation, here and through the official SDKs' own calls.

    python benchmarks/request_cost.py [--messages 10000] [--repeats 5]

All in one process, against a transport that answers at once: what is measured is the work between the conversation and
the bytes, which blocks the event loop. The SDKs are called as their documents say, with the whole conversation each
time. Ours is measured for a conversation that was sent before and has one new message: what was said before became
JSON then. "first" is a conversation that this process has not sent yet, after a restart for example.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heaveto.core.request import ModelRequest, Turn
from heaveto.events.contents import FunctionCall, FunctionResponse, Text
from heaveto.models.base import Model

QUESTION, FOUND, ANSWER = "What is on the shelf? " * 8, "third row, " * 14, "It is in the third row. " * 8
ANSWERS: dict[str, dict[str, Any]] = {
    "/chat/completions": {"choices": [{"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}]},
    "/responses": {"id": "r", "object": "response", "model": "m", "status": "completed", "output": []},
    "/messages": {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "ok"}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    ":generateContent": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}]
    },
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One API: how its SDK is called with the conversation, and our connector on the same transport."""

    api: str
    call: Callable[[], Awaitable[object]]
    model: Model


class Sent:
    """How much was sent."""

    count = 0


def client_of(http: Any, sent: Sent) -> Any:
    """A client of httpx or of httpx2 whose transport counts the bytes and answers at once."""

    class Transport(http.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            sent.count = len(await request.aread())
            body = next(answer for path, answer in ANSWERS.items() if request.url.path.endswith(path))
            return http.Response(200, json=body, request=request)

    return http.AsyncClient(transport=Transport())


def conversation(messages: int) -> list[Turn]:
    """A quarter each: a question, a call, its result, an answer."""
    turns: list[Turn] = []
    for number in range(messages // 4):
        call_id = f"call_{number}"
        turns += [
            Turn("user", (Text(text=f"{number} {QUESTION}"),)),
            Turn("model", (FunctionCall(call_id=call_id, name="look", args={"at": "shelf", "n": number}),)),
            Turn("tool", (FunctionResponse(call_id=call_id, name="look", response={"result": FOUND}),)),
            Turn("model", (Text(text=ANSWER),)),
        ]
    return [*turns, Turn("user", (Text(text="And now?"),))]


def encoded(family: str, turns: Sequence[Turn]) -> dict[str, Any]:
    module = importlib.import_module(f"heaveto.models.wire.{family}")
    return json.loads(json.dumps(module.encode(ModelRequest(turns=turns))))


def chat(turns: Sequence[Turn], http: Any) -> Side:
    import openai

    from heaveto.models.openai_chat import OpenAIChat

    sdk, body = openai.AsyncOpenAI(api_key="k", http_client=http), encoded("openai_chat", turns)
    call = lambda: sdk.chat.completions.create(model="m", **body)  # noqa: E731
    return Side("OpenAI Chat", call, OpenAIChat("m", client=sdk, stream=False))


def responses(turns: Sequence[Turn], http: Any) -> Side:
    import openai

    from heaveto.models.openai_responses import OpenAIResponses

    sdk, body = openai.AsyncOpenAI(api_key="k", http_client=http), encoded("openai_responses", turns)
    call = lambda: sdk.responses.create(model="m", **body)  # noqa: E731
    return Side("OpenAI Responses", call, OpenAIResponses("m", client=sdk, stream=False))


def claude(turns: Sequence[Turn], http: Any) -> Side:
    import anthropic

    from heaveto.models.anthropic_messages import AnthropicMessages

    sdk, body = anthropic.AsyncAnthropic(api_key="k", http_client=http), encoded("anthropic", turns)
    call = lambda: sdk.messages.create(model="m", **{**body, "max_tokens": 1000})  # noqa: E731
    return Side("Anthropic", call, AnthropicMessages("m", client=sdk, stream=False))


def gemini(turns: Sequence[Turn], http: Any) -> Side:
    from google import genai
    from google.genai import types

    from heaveto.models.gemini import Gemini

    sdk = genai.Client(api_key="k", http_options=types.HttpOptions(httpx_async_client=http))
    contents = encoded("gemini", turns)["contents"]
    call = lambda: sdk.aio.models.generate_content(model="m", contents=contents)  # noqa: E731
    return Side("Gemini", call, Gemini("m", api_key="k", http=http, stream=False))


SIDES = ((chat, "httpx2"), (responses, "httpx2"), (claude, "httpx2"), (gemini, "httpx"))


async def ask(model: Model, turns: Sequence[Turn]) -> None:
    async for _ in model.generate(ModelRequest(turns=turns)):
        pass


async def measured(act: Callable[[], Awaitable[object]], repeats: int) -> float:
    """Return the median in milliseconds."""
    times: list[float] = []
    for _ in range(repeats):
        begun = time.perf_counter()
        await act()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


async def row(make: Callable[[Sequence[Turn], Any], Side], http: Any, messages: int, repeats: int) -> str:
    """Measure one API."""
    sent, turns = Sent(), conversation(messages)
    async with client_of(http, sent) as client:
        side = make(turns, client)
        await ask(side.model, turns[-1:])  # imports, the client
        theirs = await measured(side.call, max(1, repeats // 2))
        first = await measured(lambda: ask(side.model, turns), 1)

        async def more() -> None:
            turns[-1:] = [Turn("model", (Text(text="ok"),)), Turn("user", (Text(text="And now?"),))]
            await ask(side.model, turns)

        ours = await measured(more, repeats)
    cells = [side.api, f"{theirs:,.0f}", f"{first:,.1f}", f"{ours:,.1f}", f"{theirs / ours:,.0f}×", f"{sent.count:,}"]
    return f"| {' | '.join(cells)} |"


async def main(messages: int, repeats: int) -> None:
    print(f"{messages:,} messages; milliseconds for one request\n")
    print("| API | the SDK's own call | ours, first | ours, one more message | times faster | bytes sent |")
    print("|---|---|---|---|---|---|")
    for make, http in SIDES:
        try:
            print(await row(make, importlib.import_module(http), messages, repeats))
        except ImportError as error:
            print(f"| {make.__name__} | not measured: {error} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.messages, arguments.repeats))
