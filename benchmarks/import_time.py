"""How long importing takes: the median of fresh processes, less what Python itself takes to start.

    python benchmarks/import_time.py [--repeats 10] [--slowest 10]

The peers are measured too where turn_cost.py has installed them. `--slowest` lists the modules of ours that take the
longest by themselves, from ``python -X importtime``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from peers_env import is_current, peers_python

OURS = "from heaveto import LlmAgent, Runner, MemoryStore"
PEERS = {
    "google-adk": "from google.adk.agents import LlmAgent; from google.adk.runners import InMemoryRunner",
    "langgraph": "from langgraph.graph import StateGraph; from langgraph.prebuilt import ToolNode",
    "openai-agents": "from agents import Agent, Runner",
    "pydantic-ai": "from pydantic_ai import Agent",
}


@dataclass(frozen=True)
class Import:
    """Something to import, and by which interpreter."""

    name: str
    python: str
    code: str


def imports() -> list[Import]:
    """List what to measure: the reference first, then ours."""
    wanted = [Import("msgspec + asyncio + sqlite3", sys.executable, "import msgspec, asyncio, sqlite3")]
    wanted += [
        Import("import heaveto", sys.executable, "import heaveto"),
        Import("heaveto, used", sys.executable, OURS),
    ]
    if is_current():
        wanted += [Import(name, str(peers_python()), code) for name, code in PEERS.items()]
    return wanted


def milliseconds(python: str, code: str) -> float:
    """Time one fresh process."""
    begun = time.perf_counter()
    subprocess.run([python, "-c", code], check=True, capture_output=True)
    return (time.perf_counter() - begun) * 1000


def median_over_bare(one: Import, repeats: int) -> float:
    """Return the median over `repeats` of: with the import, less without it, one right after the other."""
    milliseconds(one.python, one.code)  # writes the bytecode
    return statistics.median(
        milliseconds(one.python, one.code) - milliseconds(one.python, "pass") for _ in range(repeats)
    )


def slowest_modules(report: str, count: int) -> list[tuple[float, str]]:
    """Return (own milliseconds, module) of the slowest modules in the output of ``-X importtime``."""
    found: list[tuple[float, str]] = []
    for row in report.splitlines():
        fields = row.removeprefix("import time:").split("|")
        if len(fields) == 3 and fields[0].strip().isdigit():
            found.append((int(fields[0]) / 1000, fields[2].strip()))
    return sorted(found, reverse=True)[:count]


def table(wanted: Sequence[Import], repeats: int) -> None:
    """Print a line for each import that works here."""
    ours: float | None = None
    for one in wanted:
        try:
            taken = median_over_bare(one, repeats)
        except subprocess.CalledProcessError as error:
            print(f"{one.name:28} failed: {error.stderr.decode().strip().splitlines()[-1]}")
            continue
        ours = taken if one.code == OURS else ours
        ratio = f"  = heaveto × {taken / ours:.1f}" if ours else ""
        print(f"{one.name:28} {taken:8.1f} ms{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--slowest", type=int, default=10)
    given = parser.parse_args()
    table(imports(), given.repeats)
    report = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", OURS], capture_output=True, text=True, check=False
    )
    print("slowest modules by themselves:")
    for own, module in slowest_modules(report.stderr, given.slowest):
        print(f"  {own:7.1f} ms  {module}")


if __name__ == "__main__":
    main()
