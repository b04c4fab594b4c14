"""A process to be killed: it brings all rows of an ending to their states on a SQLite file, says so, and waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import cast

from tests.stopping.scene import Scene
from tests.stopping.table import Ending, rows

from heaveto import SqliteStore

READY = b"ready\n"
_SAVE_SECONDS = 0.5
"""What was put out is safe by then: it is saved every 250 ms."""


def open_store(place: Path) -> SqliteStore:
    return SqliteStore(place / "store.db", ttl_seconds=0.4)


async def main(place: Path, ending: Ending) -> None:
    scene = Scene(place, open_store(place))
    await scene.bring(rows(ending))
    await asyncio.sleep(_SAVE_SECONDS)
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), cast(Ending, sys.argv[2])))
