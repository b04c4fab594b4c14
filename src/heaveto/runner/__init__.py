"""Carries the runs of one application: waits, performs what was decided, stops, records."""
