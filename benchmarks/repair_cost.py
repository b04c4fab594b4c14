"""What the repair of a long history costs, here and in two libraries that have one; each in a process of its own.

python benchmarks/repair_cost.py [--messages 10000] [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from peers_env import ensure_peers

HERE = Path(__file__).resolve().parent
OURS = ("contents", "openai", "anthropic", "continued")
PEERS = ("adk_agent_harness_repair_cost.py", "pydantic_ai_repair_cost.py")


def measured(command: list[str]) -> dict[str, float | str]:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float | str] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    size = ["--messages", str(options.messages), "--repeats", str(options.repeats)]
    peers = str(ensure_peers())
    rows = [measured([sys.executable, str(HERE / "ours_repair.py"), what, *size]) for what in OURS]
    rows += [measured([peers, str(HERE / "peers" / script), *size]) for script in PEERS]
    print(f"| milliseconds for {options.messages:,} messages | valid | to ours | broken | to ours |")
    print("|---|---|---|---|---|")
    for row in rows:
        ratios = [f"{float(row[kind]) / float(rows[0][kind]):.1f} ×" for kind in ("valid", "broken")]
        print(f"| {row['name']} | {row['valid']:.1f} | {ratios[0]} | {row['broken']:.1f} | {ratios[1]} |")


if __name__ == "__main__":
    main()
