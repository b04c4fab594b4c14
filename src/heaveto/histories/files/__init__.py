"""Files that hold histories: dumps of messages, request bodies, transcripts of agents. Pure: bytes in, bytes out."""

from heaveto.histories.files.damage import Damage
from heaveto.histories.files.repair import repair_file
from heaveto.histories.files.report import FileChange, FileRepair, Refusal

__all__ = ["Damage", "FileChange", "FileRepair", "Refusal", "repair_file"]
