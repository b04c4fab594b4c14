"""Artifacts: named, versioned content beside a session's log, kept in its store or in a directory."""
