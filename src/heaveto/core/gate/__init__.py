"""Which calls may run when some things may run only so many at a time."""

from heaveto.core.gate.admission import (
    PATIENCE,
    Admission,
    CallRef,
    GateState,
    Key,
    SlotRequest,
    WaitingCall,
)

__all__ = ["PATIENCE", "Admission", "CallRef", "GateState", "Key", "SlotRequest", "WaitingCall"]
