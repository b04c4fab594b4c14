"""How the demo looks in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.box import ROUNDED
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from heaveto.cli.demo.stage import Stage, Tally, Tone

_STYLES: dict[Tone, str] = {
    "plain": "", "strong": "bold", "quiet": "dim", "good": "green", "bad": "bold red", "warn": "yellow",
}  # fmt: skip
_MAX_WIDTH = 110


class RichStage(Stage):
    """Panels and tables; colour only where it says something."""

    def __init__(self, file: TextIO) -> None:
        console = Console(file=file, highlight=False)
        if console.width > _MAX_WIDTH:
            console.width = _MAX_WIDTH
        super().__init__(file.write, console.width - 2)
        self._console = console

    def scene(self, number: int, title: str, sentence: str) -> None:
        self._console.print()
        self._console.print(
            Panel(sentence, title=f"[bold]{number} · {title}[/]", title_align="left", border_style="cyan", box=ROUNDED)
        )

    def summary(self, tallies: Sequence[Tally], closing: str, *, kept: bool) -> None:
        table = Table(box=None, show_header=False, padding=(0, 1))
        for tally in tallies:
            good = tally.kept == tally.checks
            mark = Text("✓", "green") if good else Text("✗", "bold red")
            table.add_row(
                mark, Text(tally.promise, "bold"), tally.words, Text(f"{tally.kept} of {tally.checks}", "dim")
            )
        colour = "green" if kept else "red"
        self._console.print()
        self._console.print(Panel(table, title="[bold]Promises[/]", title_align="left", border_style=colour))
        self._console.print(closing, style=colour, markup=False)

    def _put(self, text: str, tone: Tone = "plain") -> None:
        self._console.print(Text(text, _STYLES[tone]), end="", soft_wrap=True)
