"""SDKs are optional and slow to import: a connector takes its own at the first request, and names a missing one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from heaveto.core.request import ModelRequest, Turn
from heaveto.errors import MissingExtraError
from heaveto.events.contents import Text
from heaveto.models.names import connectors, model_named

ASK = ModelRequest(turns=[Turn("user", (Text(text="hi"),))])
SDKS = {
    "openai": ("openai", "openai"),
    "openai-chat": ("openai", "openai"),
    "anthropic": ("anthropic", "anthropic"),
    "google": ("google.genai", "google"),
    "litellm": ("litellm", "litellm"),
}
"""What each connector imports, and the extra that installs it."""
HEAVY = {"httpx", "httpx2", "pydantic", "starlette", "uvicorn", *(module for module, _ in SDKS.values())}


def test_every_connector_is_here() -> None:
    """A new one has its row."""
    assert SDKS.keys() == set(connectors())


@pytest.mark.parametrize("connector", SDKS)
def test_no_sdk_is_imported_before_it_is_needed(connector: str) -> None:
    """It takes seconds, for which neither a command line nor an event loop should wait."""
    program = (
        f"import sys; from heaveto.models.names import model_named; model_named('{connector}:m');"
        f"assert not {HEAVY} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(("connector", "module", "extra"), [(name, *needs) for name, needs in SDKS.items()])
async def test_a_missing_sdk_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, connector: str, module: str, extra: str
) -> None:
    """The error tells who wants it, and what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    if "." in module:
        monkeypatch.delattr(module, raising=False)  # a submodule is an attribute of its package, once it was imported
    model = model_named(f"{connector}:m")
    with pytest.raises(MissingExtraError, match=rf"{type(model).__name__}.*pip install 'heaveto\[{extra}\]'"):
        await anext(aiter(model.generate(ASK)))
    await model.aclose()
