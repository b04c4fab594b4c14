"""Tasks and threads: work that outlives its waiter, that blocks, that does not want to end."""
