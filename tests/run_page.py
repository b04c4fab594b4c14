"""Execute the Python blocks of a Markdown page, top to bottom, in one namespace: ``python run_page.py PAGE``.

Blocks may await at top level; all blocks of a page share one event loop. A traceback points at the page's own lines.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

_BLOCK = re.compile(r"^(?P<indent> *)```python *\n(?P<code>.*?)^(?P=indent)``` *$", re.MULTILINE | re.DOTALL)


def python_blocks(page: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the code of each block that is marked ``python``."""
    for block in _BLOCK.finditer(page):
        line = page.count("\n", 0, block.start("code"))
        indent = len(block["indent"])
        yield line, "".join(text[indent:] for text in block["code"].splitlines(keepends=True))


def run_page(path: Path) -> None:
    """Execute a page's blocks; the first error ends it."""
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    with asyncio.Runner() as runner:
        for line, code in python_blocks(path.read_text(encoding="utf-8")):
            source = "\n" * line + code
            program = compile(source, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            outcome = FunctionType(program, namespace)()
            if inspect.iscoroutine(outcome):
                runner.run(outcome)


if __name__ == "__main__":
    run_page(Path(sys.argv[1]))
