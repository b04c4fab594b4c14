"""What an error of the SDK means for the call that met it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH

from heaveto.errors import HeavetoError, InDoubtError, ToolsetError
from heaveto.tools.mcp.http import REFUSED, SESSION_GONE, UNREACHED


class MCPToolError(HeavetoError):
    """A server's tool says that it failed, or the server refused the call. The model is told its message."""


class RejectedError(ToolsetError):
    """A server cannot be used, and trying again does not help: correct the command, the address or the credentials."""

    retryable = False


_OURS = {UNREACHED, SESSION_GONE, REFUSED, CONNECTION_CLOSED}
_NOT_DONE = {UNREACHED, SESSION_GONE, HEADER_MISMATCH}
"""After these the server did nothing, and a new connection may help."""


def call_failure(server: str, tool: str, error: BaseException, *, sent: bool, lost: bool) -> Exception:
    """Return what a failed call is told as.

    `sent` says whether a request may have reached the server, `lost` whether the error is not the server's own answer:
    a call that was sent and not answered is in doubt, and is never sent again by itself.
    """
    if not isinstance(error, MCPError):
        return _in_doubt(server, tool, f"its answer cannot be read: {summary(error)}")
    if error.code in _NOT_DONE:
        return ToolsetError(server, f"tool {tool!r} was not executed: {error.message}")
    if error.code == REFUSED:
        return RejectedError(server, f"tool {tool!r} was not executed: {error.message}")
    if error.code == CONNECTION_CLOSED and lost:
        if sent:
            return _in_doubt(server, tool, f"no answer came: {error.message}")
        return ToolsetError(server, f"tool {tool!r} was not executed: the connection was lost before it was sent")
    return MCPToolError(error.message)


def _in_doubt(server: str, tool: str, problem: str) -> InDoubtError:
    return InDoubtError(f"tool {tool!r} of server {server!r} may or may not have taken effect: {problem}")


def needs_new_connection(error: BaseException) -> bool:
    """Whether further calls had better not use the connection that met this."""
    return isinstance(error, MCPError) and error.code in {CONNECTION_CLOSED, UNREACHED, SESSION_GONE}


def connect_failure(server: str, error: BaseException) -> ToolsetError:
    """Return why a connection did not come about."""
    cause = next(leaves(error))
    final = isinstance(cause, FileNotFoundError | PermissionError | NotADirectoryError | ValueError)
    final = final or (isinstance(cause, MCPError) and cause.code == REFUSED)
    return (RejectedError if final else ToolsetError)(server, f"cannot be reached: {summary(cause)}")


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The single errors of a group, of groups in it, or of what is no group."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            yield from leaves(one)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield error


def summary(error: BaseException) -> str:
    """Return an error in a line."""
    if isinstance(error, MCPError):
        return error.message if error.code in _OURS else f"{error.message} ({error.code})"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")
