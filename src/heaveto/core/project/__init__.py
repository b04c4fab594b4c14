"""The projection: from the log to what one agent's model is told."""

from heaveto.core.project.view import View, project

__all__ = ["View", "project"]
