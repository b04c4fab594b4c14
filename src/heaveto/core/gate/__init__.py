"""Which calls may run when some things may run only so many at a time: who waits, and who goes next.

A call asks for all its slots at once: one of the app, one of its user, one of its tool. It gets all of them or none, so
nobody sits on one slot while waiting for another.

    1. A call goes at once if each of its keys has a free slot. One that waits for another key holds nobody back.
    2. A slot that becomes free goes to the user whose last turn is longest ago; of that user's calls to the oldest that
       can go. A turn is a call that takes the last slot of a key; a user who comes anew has its turn last. So users
       take turns, however much each of them has queued.
    3. Rules 1 and 2 alone could starve a call that needs several keys, if these are never free at the same time. So the
       oldest waiting call of a key may be overtaken only so often: by one call for each user who waits there when it
       becomes the oldest, and `patience` more. Only calls that take the key's last slot count. From then on a slot of
       that key is kept for it. Age is the same order at all keys, so two calls never keep each other waiting; and the
       oldest of all goes at the latest when what runs by then has ended.
    4. A call inside another (the calls of an agent that works as a tool) does not count at the keys at which an
       enclosing call has a slot: that one waits for it. It may use kept slots; and where it would wait in a circle,
       for calls that wait for it in turn, it goes beyond the limit instead.

Everything here is deterministic; times are only carried along. Granting a call costs the logarithm of the number that
waits, times the number of different sets of shared keys that are waited for.
"""

from heaveto.core.gate.admission import PATIENCE, Admission
from heaveto.core.gate.calls import CallRef, GateState, Key, SlotRequest, WaitingCall

__all__ = ["PATIENCE", "Admission", "CallRef", "GateState", "Key", "SlotRequest", "WaitingCall"]
