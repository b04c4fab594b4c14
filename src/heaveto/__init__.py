"""heaveto."""
