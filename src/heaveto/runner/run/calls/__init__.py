"""The tool calls of a run: what may run, in which order, and each from its first attempt to its settlement."""
