"""pydantic-ai asked to go on from broken histories, over HTTP: ``pydantic_ai_repair.py API URL``."""

from __future__ import annotations

import asyncio
import sys

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as PydanticModel
from repairing import play
from shapes import Item, Model, Results, Shape, User
from wire_of_shapes import ARGS


def native(items: tuple[Item, ...]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for item in items:
        match item:
            case User(text=text):
                messages.append(ModelRequest(parts=[UserPromptPart(text)]))
            case Model(text=text, calls=calls):
                said: list[TextPart | ToolCallPart] = [TextPart(text)] if text else []
                messages.append(
                    ModelResponse(parts=[*said, *(ToolCallPart(name, ARGS, call or "") for call, name in calls)])
                )
            case Results(results=results):
                parts = [ToolReturnPart(name, value, call or "") for call, name, value in results]
                messages.append(ModelRequest(parts=parts))
    return messages


def model_of(api: str, url: str) -> PydanticModel:
    if api == "openai":
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        return OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client))
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    other = AsyncAnthropic(base_url=url, api_key="none", max_retries=0)
    return AnthropicModel("claude-sonnet-4-5", provider=AnthropicProvider(anthropic_client=other))


def main(api: str, url: str) -> None:
    def ask(shape: Shape) -> None:
        async def run() -> None:
            agent = Agent(model_of(api, url), retries=0)

            @agent.tool_plain
            def pay(bill: int) -> str:
                """Pay a bill."""
                return "paid-again"

            await agent.run(
                message_history=native(shape.items)
            )  # a prompt beside a history with open calls is an error

        asyncio.run(run())

    play(ask)


if __name__ == "__main__":
    main(*sys.argv[1:])
