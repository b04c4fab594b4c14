"""The vocabulary: contents, records of the log, and their encoding."""
