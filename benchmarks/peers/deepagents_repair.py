"""deepagents asked to go on from broken histories, over HTTP: ``deepagents_repair.py API URL``."""

from __future__ import annotations

import sys
from typing import Any

from deepagents import create_deep_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from repairing import play
from shapes import Item, Model, Results, Shape, User
from wire_of_shapes import ARGS


def native(items: tuple[Item, ...]) -> list[AnyMessage]:
    messages: list[AnyMessage] = []
    for item in items:
        match item:
            case User(text=text):
                messages.append(HumanMessage(text))
            case Model(text=text, calls=calls):
                made: list[Any] = [
                    {"name": name, "args": ARGS, "id": call, "type": "tool_call"} for call, name in calls
                ]
                messages.append(AIMessage(text, tool_calls=made))
            case Results(results=results):
                messages += [ToolMessage(value, tool_call_id=call or "", name=name) for call, name, value in results]
    return messages


def pay(bill: int) -> str:
    """Pay a bill."""
    return "paid-again"


def main(api: str, url: str) -> None:
    model: Any
    if api == "openai":
        model = ChatOpenAI(model="gpt-4o", base_url=f"{url}/v1", api_key="none", max_retries=0)
    else:
        model = ChatAnthropic(model="claude-sonnet-4-5", base_url=url, api_key="none", max_retries=0)
    agent = create_deep_agent(model=model, tools=[pay])

    def ask(shape: Shape) -> None:
        agent.invoke({"messages": native(shape.items)})

    play(ask)


if __name__ == "__main__":
    main(*sys.argv[1:])
