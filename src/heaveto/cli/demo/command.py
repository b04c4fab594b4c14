"""The command ``heaveto demo``."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import click

from heaveto.cli.demo.mind import mind
from heaveto.cli.demo.providers import PROVIDERS
from heaveto.cli.demo.scenes import SCENES
from heaveto.cli.demo.shop import Printer, RefundService, support_agent
from heaveto.cli.demo.show import DemoError, Show
from heaveto.cli.demo.stage import Stage
from heaveto.cli.exits import FAILED, INTERRUPTED, OK
from heaveto.errors import MissingExtraError
from heaveto.runner.runner import Runner
from heaveto.stores.sqlite import SqliteStore
from heaveto.testing.emulator import Emulator

_STORE, _BOOKS = "demo.db", "refunds.jsonl"
_PLAIN_WIDTH = 110


@click.command("demo")
@click.option("--dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Keep the files here.")
@click.option("--fast", is_flag=True, help="No pauses for readers.")
@click.option(
    "--provider",
    type=click.Choice(list(PROVIDERS)),
    default="openai-chat",
    show_default=True,
    help="Whose API and SDK.",
)
def command(directory: Path | None, fast: bool, provider: str) -> None:
    """Watch runs being stopped and killed, and sessions go on.

    A support agent runs through a provider's official SDK, over HTTP, against a bundled server that judges each request
    by the real one's rules; its log is an SQLite file. Every scene checks its promises: the exit code is 1 if
    one was broken. Works offline and needs no key.
    """
    _require_extras(provider)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"
    with _warnings_off(), _place(directory) as place:
        try:
            kept = asyncio.run(_perform(place, provider, fast=fast))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        if directory is not None:
            store = place / _STORE
            print(f"\nThe files are kept: heaveto sessions --store {store}; heaveto doctor {store}")
    sys.exit(OK if kept else FAILED)


def _require_extras(provider: str) -> None:
    for module in (PROVIDERS[provider].sdk, "uvicorn"):
        if not _is_installed(module):
            raise MissingExtraError("demo", "the demo")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it would be in
        return False


@contextmanager
def _warnings_off() -> Generator[None, None, None]:
    """What is warned of here is what is shown."""
    logger = logging.getLogger("heaveto")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _place(directory: Path | None) -> Generator[Path, None, None]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="heaveto-demo-") as name:
            yield Path(name)
        return
    directory.mkdir(parents=True, exist_ok=True)
    if (directory / _STORE).exists():
        raise click.UsageError(f"{directory / _STORE} is there already, of an earlier demo; choose another directory")
    yield directory


async def _perform(place: Path, provider: str, *, fast: bool) -> bool:
    begun = time.monotonic()
    service, printer = RefundService(place / _BOOKS), Printer()
    async with Emulator(mind(0.008 if fast else 0.025), strict=False) as emulator:
        agent = support_agent(service, printer, PROVIDERS[provider].connect(emulator.anthropic_url))
        async with Runner(agent, store=SqliteStore(place / _STORE)) as runner:
            files, pause = (place / _STORE, place / _BOOKS), 0.0 if fast else 0.7
            show = Show(_stage(), runner, provider, emulator, service, printer, *files, pause)
            try:
                await _scenes(show)
            finally:
                printer.page_done.set()
    return _conclude(show, time.monotonic() - begun)


async def _scenes(show: Show) -> None:
    for number, (title, sentence, scene) in enumerate(SCENES, start=1):
        show.stage.scene(number, title, sentence)
        try:
            await scene(show)
        except DemoError as error:
            show.check("P7", f"the scene did not come to its end: {error}", False)
        except TimeoutError:
            show.check("P7", "the scene did not come to its end: it waited too long", False)
        await asyncio.sleep(show.pause_seconds)


def _conclude(show: Show, seconds: float) -> bool:
    broken = sum(not check.kept for check in show.checks)
    count = len(show.checks)
    verdict = f"{broken} of {count} checks failed" if broken else f"all {count} checks passed"
    requests = f"{len(show.emulator.exchanges)} requests over HTTP ({PROVIDERS[show.provider].title})"
    closing = f"{verdict}, {requests}, {seconds:.1f} s"
    show.stage.summary(show.tallies(), closing, kept=not broken)
    return not broken


def _stage() -> Stage:
    if sys.stdout.isatty() and find_spec("rich") is not None and os.environ.get("TERM") != "dumb":
        from heaveto.cli.demo.rich_stage import RichStage

        return RichStage(sys.stdout)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace", line_buffering=True)
    return Stage(sys.stdout.write, min(shutil.get_terminal_size((_PLAIN_WIDTH, 24)).columns, _PLAIN_WIDTH))
