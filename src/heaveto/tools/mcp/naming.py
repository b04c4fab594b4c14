"""Names that every provider accepts, for tools whose server named them as it liked. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from itertools import count

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64
_MARK = 8
"""So many characters tell names apart that would otherwise be the same."""


def provider_names(names: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Return, for each of a server's names, a unique one of 1 to 64 characters ``[A-Za-z0-9_-]``.

    A name that is fit stays as it is. One that had to be changed is marked with a digest of the original if it would
    clash or was cut. What a name becomes does not depend on the order of the list.
    """
    originals = sorted(set(names))
    fit = {name: _OTHER.sub("_", prefix + name) for name in originals}
    wanted = Counter(fit.values())
    taken = {new for name, new in fit.items() if new == prefix + name and 0 < len(new) <= _LONGEST}
    chosen: dict[str, str] = {}
    for name, new in fit.items():
        usable = 0 < len(new) <= _LONGEST and (new == prefix + name or wanted[new] == 1)
        chosen[name] = new if usable else _marked(prefix + name, new, taken)
        taken.add(chosen[name])
    return chosen


def _marked(original: str, new: str, taken: set[str]) -> str:
    stem = new[: _LONGEST - _MARK - 1]
    for attempt in count():  # a server may have given the very name that another one would get
        digest = hashlib.sha256(f"{original}{attempt or ''}".encode("utf-8", "surrogatepass")).hexdigest()
        candidate = f"{stem}_{digest[:_MARK]}"
        if candidate not in taken:
            return candidate
    raise AssertionError("unreachable")
