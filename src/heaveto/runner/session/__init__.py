"""A session's log in this process, and what is done to it from the side, by whoever may."""
