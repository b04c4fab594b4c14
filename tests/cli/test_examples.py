"""The programs under `examples/` run as they stand, without a key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.terminal import environment

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
EXPECTED = {
    "gated_refund": [
        "May refund_order run with {'order': 7, 'amount': 10}? Yes, but with an amount of 8.",
        "The bank was asked 2 times and has paid: [{'order': 7, 'amount': 8}]",
    ],
    "safe_refund": ["The bank has booked: [1, 2, 3]", "order 4: cancelled"],
    "sequential_pipeline": ["count: The draft has 7 words.", "editor: The lamp turns; ships pass; nobody waves."],
    "stop_a_run": ["refund_order: stopped", "print_letter: still_running", "The letter is printed now."],
    "support_agent": ["Order 7 is refunded: the money is on its way."],
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    """In a fresh process and an empty directory, and it shows what it is about."""
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in EXPECTED[example.stem] if line not in done.stdout] == []
