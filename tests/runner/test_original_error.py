"""A failed run is raised from the error that failed it."""

from __future__ import annotations

import pytest

from heaveto import LlmAgent, RunFailedError, Runner
from heaveto.errors import ModelError
from heaveto.testing import ScriptedModel, fault


async def test_a_failure_carries_its_original_error_at_once() -> None:
    """Whoever waits for the result learns of the ending first; the original error must be there by then."""
    async with Runner(LlmAgent("root", ScriptedModel(fault("no such model", status=404)))) as runner:
        run = await runner.start(user_id="ann", session_id="s", new_message="hi")
        with pytest.raises(RunFailedError) as failure:
            await run.result()
        assert isinstance(failure.value.__cause__, ModelError)
        with pytest.raises(RunFailedError) as again:
            await run.result()
        assert again.value.__cause__ is failure.value.__cause__
