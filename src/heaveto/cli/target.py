"""FILE:APP: from what a user types to an app."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import click

from heaveto.agents.base import BaseAgent
from heaveto.runner.application.app import App

_USUAL_NAMES = ("app", "root_agent", "agent")


def load_app(target: str) -> App:
    """Return the app that a target such as ``shop.py:app`` or ``package.module:agent`` names.

    Without ``:APP`` it is what the module calls ``app``, ``root_agent`` or ``agent``.

    Raises:
        click.UsageError: it names nothing that can be run; the message says what there is.
    """
    place, name = _split(target)
    module = _load_module(place)
    value = _named(module, place, name)
    return value if isinstance(value, App) else App(value.name, value)


def _split(target: str) -> tuple[str, str]:
    place, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():  # no name, or the colon of a Windows drive
        return target, ""
    return place, name


def _load_module(place: str) -> ModuleType:
    path = Path(place)
    if path.suffix == ".py" or "/" in place:
        return _load_file(path)
    sys.path.insert(0, "")
    try:
        found = importlib.util.find_spec(place)
    except (ImportError, ValueError):
        found = None
    if found is None:
        hint = f"; did you mean {place}.py?" if Path(f"{place}.py").exists() else ""
        raise click.UsageError(f"there is no module {place!r}{hint}")
    return importlib.import_module(place)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise click.UsageError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.absolute()))  # its neighbours are importable, as with `python FILE`
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _named(module: ModuleType, place: str, name: str) -> App | BaseAgent:
    there = {key: value for key, value in vars(module).items() if isinstance(value, App | BaseAgent)}
    if name:
        if name in there:
            return there[name]
        problem = "is neither an App nor an agent" if name in vars(module) else "is not there"
        raise click.UsageError(f"{place}: {name!r} {problem}; {_list(there)}")
    usual = next((there[key] for key in _USUAL_NAMES if key in there), None)
    if usual is not None:
        return usual
    if len(there) == 1:
        return next(iter(there.values()))
    raise click.UsageError(f"{place}: name the app, as in {place}:NAME; {_list(there)}")


def _list(there: dict[str, App | BaseAgent]) -> str:
    return f"there are: {', '.join(there)}" if there else "it holds no App and no agent"
