"""The shop that the demo's agent works for: a refund service with books of its own, a printer, the tools, the agent."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heaveto.agents.llm import LlmAgent
from heaveto.models.base import Model
from heaveto.tools.base import Tool, ToolContext
from heaveto.tools.function import FunctionTool

APP = "support"
_QUICK_ORDERS = (7,)
_BANK_SECONDS = 60.0


class RefundService:
    """Another company's service, which pays for every request that it gets: it recognises no repeats.

    Its books are a file that no runtime can talk out of a double payment.
    """

    def __init__(self, books: Path) -> None:
        self._books = books

    def pay(self, order: int, key: str) -> None:
        """Pay a refund; it is in the books, on the disk, on return."""
        with self._books.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"order": order, "key": key}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def payments(self, order: int) -> int:
        """Return how often an order was refunded."""
        if not self._books.exists():
            return 0
        lines = self._books.read_text(encoding="utf-8").splitlines()
        return sum(json.loads(line)["order"] == order for line in lines)


@dataclass(slots=True)
class Printer:
    """A machine that finishes its page whatever anybody wants: the demo says when."""

    page_done: threading.Event = field(default_factory=threading.Event)


def tools(service: RefundService, printer: Printer) -> list[Tool | Callable[..., Any]]:
    """Return the agent's tools."""

    async def lookup_order(order: int) -> dict[str, Any]:
        """Look up an order."""
        await asyncio.sleep(0.05)
        return {"order": order, "status": "shipped", "carrier": "North Sea Parcels"}

    async def refund_order(order: int, ctx: ToolContext) -> dict[str, Any]:
        """Refund an order. The money moves at once; the bank's confirmation takes its time."""
        service.pay(order, ctx.idempotency_key)
        await asyncio.sleep(0.05 if order in _QUICK_ORDERS else _BANK_SECONDS)
        return {"order": order, "refunded": True}

    async def check_refund(order: int) -> dict[str, Any]:
        """Ask the refund service how often an order was refunded."""
        return {"order": order, "payments": service.payments(order)}

    async def send_voucher(order: int, amount: int, ctx: ToolContext) -> dict[str, Any]:
        """Send a voucher to the customer of an order. Needs a person's yes."""
        service.pay(order, ctx.idempotency_key)
        return {"order": order, "amount": amount, "sent": True}

    def print_letter(order: int) -> dict[str, Any]:
        """Print a letter to the customer: a blocking driver call that nothing can interrupt."""
        printer.page_done.wait()
        return {"order": order, "printed": True, "tray": 2}

    def print_label(order: int) -> dict[str, Any]:
        """Print a parcel label."""
        return {"order": order, "printed": True}

    return [
        lookup_order,
        refund_order,
        FunctionTool(check_refund, replay="safe"),
        FunctionTool(send_voucher, require_confirmation=True),
        print_letter,
        print_label,
    ]


def support_agent(service: RefundService, printer: Printer, model: Model) -> LlmAgent:
    """Return the agent."""
    return LlmAgent(APP, model, instruction="You are the support agent of a small shop.", tools=tools(service, printer))
