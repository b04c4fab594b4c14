"""What one tool call costs, from its proposal to its recorded result: here, in two peers, and as a bare `await`.

    python benchmarks/call_cost.py [--repeats 3] [--rounds 30]

The tool does nothing, so what is left is the framework: validation, hooks, records, the durable start before the effect
and the durable result behind it. `together` are 32 calls of one model message; `chained` are calls that come one after
another, each with the model call that makes it (the model answers at once). See `peers/calls.py` for how it is taken.

Each program runs in a process of its own, one after another, and the whole row is repeated. A cell is the median over
the repeats, beside it the ratio to heaveto on the same store, or in memory where the peer has no store.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from peers_env import ensure_peers
from turn_cost import align, ratio

HERE = Path(__file__).resolve().parent
OURS = "heaveto"
PROGRAMS = {
    (OURS, "memory"): "ours_calls.py",
    (OURS, "sqlite"): "ours_calls.py",
    ("google-adk", "memory"): "peers/google_adk_calls.py",
    ("google-adk", "sqlite"): "peers/google_adk_calls.py",
    ("pydantic-ai", "memory"): "peers/pydantic_ai_calls.py",
}
SHAPES = ("together", "chained")

Line = Mapping[str, object]
Cells = Mapping[tuple[str, str], Mapping[str, float]]


def run(name: str, store: str, rounds: int, directory: str | None) -> Line | None:
    """Run one program and return its line; one that fails says so and has none."""
    python = sys.executable if name == OURS else str(ensure_peers())
    with tempfile.TemporaryDirectory(prefix="call-cost-", dir=directory) as fresh:
        command = [python, str(HERE / PROGRAMS[name, store]), "--store", store, "--rounds", str(rounds), "--dir", fresh]
        done = subprocess.run(command, capture_output=True, text=True, cwd=fresh, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{name} on {store} failed: {reason}", file=sys.stderr)
        return None
    line: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return line | {"peer": name}


def collect(only: Sequence[str], repeats: int, rounds: int, directory: str | None) -> list[Line]:
    """Run the whole row `repeats` times."""
    lines: list[Line] = []
    for number in range(repeats):
        for name, store in PROGRAMS:
            if name in only:
                print(f"{number + 1}/{repeats} {name} {store}", file=sys.stderr)
                line = run(name, store, rounds, directory)
                lines += [line] if line is not None else []
    return lines


def cells(lines: Iterable[Line]) -> Cells:
    """Return the median of each figure of each program over the repeats."""
    grouped: dict[tuple[str, str], dict[str, list[float]]] = {}
    for line in lines:
        figures = grouped.setdefault((str(line["peer"]), str(line["store"])), {})
        for name, value in line.items():
            if isinstance(value, (int, float)):
                figures.setdefault(name, []).append(value)
    return {key: {name: statistics.median(of) for name, of in figures.items()} for key, figures in grouped.items()}


def table(found: Cells, versions: Mapping[str, str]) -> str:
    """Render a row for each program, and what was timed beside ours."""
    rows = [["microseconds per call", *SHAPES]]
    for (name, store), figures in found.items():
        ours = found.get((OURS, store), {})
        texts = [f"{figures[shape]:.0f} ({ratio(figures[shape], ours.get(shape))})" for shape in SHAPES]
        rows.append([f"{name} {versions[name]}, {store}", *texts])
    return align(rows)


def references(found: Cells) -> str:
    """Say how ours stands to what it is made of."""
    lines: list[str] = []
    for store in ("memory", "sqlite"):
        figures = found.get((OURS, store), {})
        for name, text in (
            ("bare", "await fn()"),
            ("task", "await create_task(fn())"),
            ("commits", "two bare commits"),
        ):
            if name in figures:
                times = ", ".join(f"{shape} {ratio(figures[shape], figures[name])}" for shape in SHAPES)
                lines.append(f"{store}: {text} takes {figures[name]:.2f} µs; a call of heaveto's is {times} of it")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30, help="how often each shape is timed in one process")
    parser.add_argument("--only", default=",".join(dict.fromkeys(name for name, _ in PROGRAMS)), help="comma-separated")
    parser.add_argument("--dir", default=None, help="where database files are made: the disk that is measured")
    given = parser.parse_args()
    lines = collect(given.only.split(","), given.repeats, given.rounds, given.dir)
    found = cells(lines)
    print(table(found, {str(line["peer"]): str(line["version"]) for line in lines}))
    print(references(found))


if __name__ == "__main__":
    main()
