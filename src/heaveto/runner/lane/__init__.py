"""One session in this process: one run at a time, from the message that waits to the end hook."""
