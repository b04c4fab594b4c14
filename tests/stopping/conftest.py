"""The runner's desks serve here too."""

from __future__ import annotations

from tests.runner.conftest import desk

__all__ = ["desk"]
