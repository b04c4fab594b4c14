"""How long from a person's answer to the model's next request: here, and in google-adk.

    python benchmarks/pause_answer.py [--rounds 200]

A run pauses at a call that waits. It is answered, and the clock stops when the model is asked with the result. What
lies between: finding the session, recording the answer, taking the run up, and the request. Each answer is given in a
session of its own. On SQLite also beside three bare commits, the least that is durable before the model is asked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from peers_env import ensure_peers
from turn_cost import align, ratio

HERE = Path(__file__).resolve().parent
OURS = "heaveto"
PROGRAMS = {OURS: "ours_pauses.py", "google-adk": "peers/google_adk_pauses.py"}


def run(name: str, store: str, rounds: int, directory: str | None) -> dict[str, object] | None:
    """Run one program and return its line; one that fails says so and has none."""
    python = sys.executable if name == OURS else str(ensure_peers())
    with tempfile.TemporaryDirectory(prefix="pause-answer-", dir=directory) as fresh:
        command = [python, str(HERE / PROGRAMS[name]), "--store", store, "--rounds", str(rounds), "--dir", fresh]
        done = subprocess.run(command, capture_output=True, text=True, cwd=fresh, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{name} on {store} failed: {reason}", file=sys.stderr)
        return None
    line: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return line | {"peer": name}


def rows(lines: Sequence[dict[str, object]]) -> list[list[str]]:
    """Render a row for each program, p50 beside ours on the same store."""
    ours = {line["store"]: float(str(line["p50"])) for line in lines if line["peer"] == OURS}
    found = [["ms from answer to model request", "p50", "p99"]]
    for line in lines:
        p50, store = float(str(line["p50"])), line["store"]
        name = f"{line['peer']} {line['version']}, {store}"
        found.append([name, f"{p50:.2f} ({ratio(p50, ours.get(store))})", f"{float(str(line['p99'])):.2f}"])
        if "commits" in line:
            commits = float(str(line["commits"]))
            found.append(["three bare commits", f"{commits:.2f} ({ratio(commits, ours.get(store))})", ""])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--only", default=",".join(PROGRAMS), help="which programs")
    parser.add_argument("--dir", default=None, help="where database files are made: the disk that is measured")
    given = parser.parse_args()
    wanted = [(name, store) for store in ("memory", "sqlite") for name in given.only.split(",")]
    lines = [run(name, store, given.rounds, given.dir) for name, store in wanted]
    print(align(rows([line for line in lines if line is not None])))


if __name__ == "__main__":
    main()
