"""Session state as agents, tools and callbacks see it: a mapping that remembers what was set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence

from heaveto.events.codec import decode_value, encode_value
from heaveto.events.contents import Json


class StateView(MutableMapping[str, Json]):
    """Layers of state, the first that has a key wins; writes are collected as a delta until they are taken.

    Keys with ``temp:`` live as long as the run and are never recorded. Setting None, or deleting, removes a key.
    """

    __slots__ = ("_delta", "_layers", "_temp")

    def __init__(self, layers: Sequence[Mapping[str, Json]], temp: dict[str, Json]) -> None:
        self._layers, self._temp = layers, temp
        self._delta: dict[str, Json] = {}

    def take_delta(self) -> dict[str, Json]:
        """Return what was set since the last call, for a `StateChanged` record."""
        delta, self._delta = self._delta, {}
        return delta

    def __getitem__(self, key: str) -> Json:
        for layer in (self._delta, self._temp, *self._layers):
            if key in layer:
                value = layer[key]
                if value is None:
                    break
                return value
        raise KeyError(key)

    def __setitem__(self, key: str, value: Json) -> None:
        """Set a value; what is recorded later is the value as it is now.

        Raises:
            NotSerializableError: key or value cannot be said in JSON, and the key does not begin with ``temp:``.
        """
        if key.startswith("temp:"):
            self._temp[key] = value
        else:
            value = decode_value(encode_value(value, f"state[{key!r}]"))
            encode_value(key, "a key of the state")
            self._delta[key] = value

    def __delitem__(self, key: str) -> None:
        self[key]  # raises KeyError for what is not there
        self[key] = None

    def __iter__(self) -> Iterator[str]:
        seen: set[str] = set()
        for layer in (self._delta, self._temp, *self._layers):
            for key in layer:
                if key not in seen:
                    seen.add(key)
                    if key in self:
                        yield key

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # type: ignore[index]
        except KeyError:
            return False
        return True

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"StateView({dict(self)!r})"
