"""One turn of langgraph: two model calls and one tool, a model without latency, in the smallest graph for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from measure import Plan, plan_from_arguments, report, time_turns

NUMBERS = count()


@tool
async def f(x: int) -> str:
    """Return x."""
    return str(x)


async def ask_model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Call the tool once, then say that it is done."""
    number = next(NUMBERS)
    if isinstance(state["messages"][-1], ToolMessage):
        return {"messages": [AIMessage("done", id=f"a{number}")]}
    call = {"name": "f", "args": {"x": 1}, "id": f"c{number}"}
    return {"messages": [AIMessage("", id=f"a{number}", tool_calls=[call])]}


def next_node(state: MessagesState) -> str:
    return "tools" if state["messages"][-1].tool_calls else END


def build(saver: BaseCheckpointSaver) -> CompiledStateGraph:
    graph = StateGraph(MessagesState)
    graph.add_node("model", ask_model)
    graph.add_node("tools", ToolNode([f]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", next_node, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


@asynccontextmanager
async def open_saver(plan: Plan) -> AsyncIterator[BaseCheckpointSaver]:
    if plan.store == "memory":
        yield InMemorySaver()
        return
    async with AsyncSqliteSaver.from_conn_string(plan.path("langgraph.db")) as saver:
        yield saver


async def main(plan: Plan) -> None:
    thread = {"configurable": {"thread_id": "1"}}
    async with open_saver(plan) as saver:
        app = build(saver)
        times = await time_turns(plan.turns, lambda: app.ainvoke({"messages": [HumanMessage("hi")]}, thread))
        state = await app.aget_state(thread)
        report(plan, "langgraph", len(state.values["messages"]), times)


if __name__ == "__main__":
    asyncio.run(main(plan_from_arguments(["memory", "sqlite"])))
