"""What the formats call things, where more than one part of this package must know it. Facts, no rules.

A validator, a repair and an encoder each decide by themselves, so that one can judge the other; the words that they
look for stand here.
"""

from __future__ import annotations

from collections.abc import Mapping

ALIASES: Mapping[str, str] = {"openai-chat": "openai", "google": "gemini", "dashscope": "qwen", "moonshot": "kimi"}
"""Other names of formats."""

# --- Anthropic ------------------------------------------------------------------------------------------------------

THINKING = ("thinking", "redacted_thinking")
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
"""Calls of tools that the provider executes itself."""

# --- OpenAI Responses -----------------------------------------------------------------------------------------------

OUTPUT_OF: Mapping[str, str] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "computer_call": "computer_call_output",
}
"""The client's calls and what answers them (R2). The provider executes the others itself."""
LOCAL_SHELL_OUTPUT = OUTPUT_OF["local_shell_call"]
"""The one output whose own id is that of its call."""
