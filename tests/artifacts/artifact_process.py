"""Another process that saves artifacts, for the tests: `python artifact_process.py DIRECTORY NAME [COUNT]`.

It tells the version of each save that was confirmed in a line of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

from heaveto.artifacts.files import FileArtifacts
from heaveto.events.contents import Blob
from heaveto.testing.artifact_contract import KEY


async def main() -> None:
    directory, name, *rest = sys.argv[1:]
    service = FileArtifacts(directory)
    for number in itertools.count() if not rest else range(int(rest[0])):
        content = bytes([number % 256]) * 200_000
        print(await service.save(KEY, name, Blob(mime_type=f"x/{os.getpid()}", content=content)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
