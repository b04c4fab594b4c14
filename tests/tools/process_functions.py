"""Functions that the tests execute in worker processes, which import them from here."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from heaveto.errors import ToolFatalError
from heaveto.tools.base import ToolContext
from heaveto.tools.process import wire


@dataclass
class Passenger:
    name: str
    age: int = 30


class Unsendable(Exception):
    """An error that pickle cannot make again."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


class Methods:
    @staticmethod
    def twice(number: int) -> int:
        return 2 * number

    def bound(self) -> int:
        return 1


def pid() -> int:
    return os.getpid()


def older(passenger: Passenger) -> Passenger:
    return Passenger(passenger.name, passenger.age + 1)


def large(count: int) -> bytes:
    return b"x" * count


def large_for_a_small_limit() -> bytes:
    wire.MAX_VALUE_BYTES = 1000
    return b"x" * 1000


def unsendable_result() -> Any:
    return threading.Lock()


def fail() -> NoReturn:
    raise KeyError("seat 12")


def fail_fatally() -> NoReturn:
    raise ToolFatalError("no way on")


def fail_oddly() -> NoReturn:
    raise Unsendable("this", "that")


def leave() -> NoReturn:
    sys.exit(4)


def die(how: str) -> None:
    """Die at once, and let a child go on that holds all that was open."""
    if how == "with child":
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,)).start()
        os._exit(3)
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGSEGV if how == "segfault" else signal.SIGKILL)


def chatter() -> str:
    """Write to everything that is written to by habit."""
    print("printed")
    os.write(1, b"\0\0\0\0\0\0\0\xff raw\n")
    os.write(2, b"\0" * 100)
    sys.stdin.read()
    return "said"


def everything(ctx: ToolContext) -> dict[str, Any]:
    """Use all that a context has."""
    ctx.output("hello ")
    ctx.output({"rows": 3})
    ctx.progress_from_thread({"row": 8})
    ctx.state["seen"] = ctx.state["given"]
    del ctx.state["given"]
    ctx.end_turn = True
    version = asyncio.run(ctx.save_artifact("a.txt", "text"))
    return {
        "known": [ctx.call_id, ctx.idempotency_key, ctx.attempt, ctx.agent, ctx.run_id, ctx.session.user],
        "progress": ctx.last_progress,
        "state": dict(ctx.state),
        "missing": "given" in ctx.state,
        "reply": asyncio.run(ctx.ask("sure?")).value,
        "artifact": [version, asyncio.run(ctx.load_artifact("a.txt"))],
        "cancelled": ctx.cancelled,
    }


def run_agent(ctx: ToolContext) -> str:
    return asyncio.run(ctx.run_agent(object(), "do"))


def wait(ctx: ToolContext, path: str) -> None:
    """Start a child, wait for ever, and clean up."""
    subprocess.Popen(["bash", "-c", f"sleep 60; touch {path}.late"])
    subprocess.Popen(["setsid", "bash", "-c", f"trap '' TERM; sleep 60; touch {path}.late"])
    try:
        ctx.output("waiting")
        time.sleep(60)
    finally:
        Path(path).write_text("cleaned up", encoding="utf-8")


def deaf(ctx: ToolContext) -> None:
    """Take no notice of anything."""
    words = ["deaf"]
    while True:
        try:
            while words:
                ctx.output(words.pop())
            time.sleep(60)
        except BaseException:
            continue


def polite(ctx: ToolContext) -> str:
    """Wait until it is asked to stop, and finish."""
    asked = threading.Event()
    ctx.on_cancel(asked.set)
    ctx.output("waiting")
    asked.wait(30)
    return f"cancelled: {ctx.cancelled}"


def stop_by_itself(ctx: ToolContext) -> None:
    ctx.output("waiting")
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.005)


def pieces(count: int) -> Iterator[str]:
    for number in range(count):
        yield f"piece {number}. "


def late_talk(ctx: ToolContext, path: str) -> str:
    """Leave a thread behind that talks when the next call comes."""

    def talk() -> None:
        while not Path(path).exists():
            time.sleep(0.005)
        try:
            ctx.output("from the call before")
        except BaseException as error:
            Path(f"{path}.refused").write_text(type(error).__name__, encoding="utf-8")

    threading.Thread(target=talk, daemon=True).start()
    return "left"


def wait_for(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.005)
    return "there"
