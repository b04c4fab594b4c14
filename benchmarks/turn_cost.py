"""What one turn costs, here and in the peers, as the session grows; and what SQLite alone would cost.

    python benchmarks/turn_cost.py [--repeats 3] [--only heaveto,langgraph] [--json results.json]

A turn is one message, two model calls and one tool call, in process, with a model that answers at once. Every program
runs in a process of its own, one after another, and the whole row of them is repeated, so that a busy minute of the
machine hits all alike. A cell is the median over the repeats of the median turn around that point.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from peers_env import ensure_peers

HERE = Path(__file__).resolve().parent
OURS = "heaveto"
STORES = ("memory", "sqlite")
SHARED_POINTS = (25, 150, 300)
OUR_POINTS = (15, *SHARED_POINTS, 1429)
"""Ours has seven records a turn: these are 100 and 10,000 records, and what the peers are asked for."""
PEERS = {
    "google-adk": ("google_adk_turn.py", ("memory", "sqlite")),
    "langgraph": ("langgraph_turn.py", ("memory", "sqlite")),
    "openai-agents": ("openai_agents_turn.py", ("memory", "sqlite")),
    "pydantic-ai": ("pydantic_ai_turn.py", ("memory",)),
}


@dataclass(frozen=True)
class Program:
    """One process to time."""

    name: str
    store: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """What was measured at one point, over all repeats."""

    name: str
    store: str
    version: str
    turns: int
    records: int
    ms: float
    spread: float
    bare_ms: float | None
    least_ms: float | None


def programs(only: Sequence[str]) -> list[Program]:
    """List what to run, ours first."""
    wanted = [Program(OURS, store, command(sys.executable, "ours_turn.py", store, OUR_POINTS)) for store in STORES]
    if set(only) - {OURS}:
        python = str(ensure_peers())
        for name, (script, stores) in PEERS.items():
            wanted += [Program(name, s, command(python, f"peers/{script}", s, SHARED_POINTS)) for s in stores]
    return [program for program in wanted if program.name in only]


def command(python: str, script: str, store: str, points: Iterable[int]) -> tuple[str, ...]:
    return (
        python,
        str(HERE / script),
        "--store",
        store,
        "--points",
        ",".join(map(str, points)),
    )


def run(program: Program, rounds: int, directory: str) -> list[dict[str, object]]:
    """Run one program and return its lines; one that fails says so and has none."""
    given = [*program.command, "--rounds", str(rounds), "--dir", directory]
    done = subprocess.run(given, capture_output=True, text=True, cwd=directory, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{program.name} on {program.store} failed: {reason}", file=sys.stderr)
        return []
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [line | {"peer": program.name} for line in found]


def collect(wanted: Sequence[Program], repeats: int, rounds: int, directory: str | None) -> list[dict[str, object]]:
    """Run the whole row `repeats` times."""
    lines: list[dict[str, object]] = []
    for number in range(repeats):
        for program in wanted:
            print(
                f"{number + 1}/{repeats} {program.name} {program.store}",
                file=sys.stderr,
            )
            with tempfile.TemporaryDirectory(prefix="turn-cost-", dir=directory) as fresh:
                lines += run(program, rounds, fresh)
    return lines


def cells(lines: Iterable[dict[str, object]]) -> dict[tuple[str, str, int], Cell]:
    """Put the repeats of each point together."""
    grouped: dict[tuple[str, str, int], list[dict[str, object]]] = {}
    for line in lines:
        grouped.setdefault((str(line["peer"]), str(line["store"]), int(str(line["turns"]))), []).append(line)
    return {key: cell(key, group) for key, group in grouped.items()}


def cell(key: tuple[str, str, int], group: Sequence[dict[str, object]]) -> Cell:
    times = [float(str(line["ms_per_turn"])) for line in group]
    bare, least = ([float(str(line[name])) for line in group if name in line] for name in ("bare_ms", "least_ms"))
    return Cell(
        name=key[0],
        store=key[1],
        version=str(group[0]["version"]),
        turns=key[2],
        records=int(str(group[0]["records"])),
        ms=statistics.median(times),
        spread=(max(times) - min(times)) / statistics.median(times),
        bare_ms=statistics.median(bare) if bare else None,
        least_ms=statistics.median(least) if least else None,
    )


def ratio(value: float, reference: float | None) -> str:
    return "–" if not reference else f"{value / reference:.1f}×"


def peer_table(found: dict[tuple[str, str, int], Cell], store: str) -> str:
    """Render one store's table: milliseconds, and in brackets the ratio to ours after as many turns."""
    head = [
        "store: " + store,
        *(f"{turns} turns" for turns in SHARED_POINTS),
        "last/first",
        "spread",
    ]
    rows = [head]
    for name in (OURS, *PEERS):
        row = [found[key] for turns in SHARED_POINTS if (key := (name, store, turns)) in found]
        if not row:
            continue
        ours = [found.get((OURS, store, one.turns)) for one in row]
        texts = [
            f"{one.ms:.2f} ms ({ratio(one.ms, mine.ms if mine else None)})" for one, mine in zip(row, ours, strict=True)
        ]
        widest = max(one.spread for one in row)
        rows.append(
            [
                f"{name} {row[0].version}",
                *texts,
                ratio(row[-1].ms, row[0].ms),
                f"{widest:.0%}",
            ]
        )
    return align(rows)


def own_table(found: dict[tuple[str, str, int], Cell]) -> str:
    """Render how ours grows, and how it stands to what SQLite alone takes.

    "Same rows" is a program that writes these and does nothing else. What a turn costs beyond it and beyond a turn in
    memory is all that the store can still save.
    """
    head = ["heaveto", "turns", "records", "ms per turn", "to first", "4 bare commits, ms", "to bare"]
    rows = [[*head, "same rows, ms", "to same rows + memory"]]
    for store in STORES:
        row = [found[key] for turns in OUR_POINTS if (key := (OURS, store, turns)) in found]
        for one in row:
            bare, least = ("–" if ms is None else f"{ms:.3f}" for ms in (one.bare_ms, one.least_ms))
            memory = found.get((OURS, "memory", one.turns))
            floor = one.least_ms + memory.ms if one.least_ms and memory else None
            texts = [store, str(one.turns), str(one.records), f"{one.ms:.3f}", ratio(one.ms, row[0].ms)]
            rows.append([*texts, bare, ratio(one.ms, one.bare_ms), least, ratio(one.ms, floor)])
    return align(rows)


def align(rows: Sequence[Sequence[str]]) -> str:
    """Render rows as a Markdown table."""
    widths = [max(len(text) for text in column) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20, help="turns in the window around each point")
    parser.add_argument("--only", default=",".join((OURS, *PEERS)), help="names, comma-separated")
    parser.add_argument(
        "--dir",
        default=None,
        help="where database files are made: the disk that is measured",
    )
    parser.add_argument("--json", type=Path, default=None, help="write all lines to this file too")
    given = parser.parse_args()
    lines = collect(programs(given.only.split(",")), given.repeats, given.rounds, given.dir)
    if given.json:
        given.json.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    found = cells(lines)
    print("\n\n".join([*(peer_table(found, store) for store in STORES), own_table(found)]))


if __name__ == "__main__":
    main()
