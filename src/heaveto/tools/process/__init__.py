"""Blocking functions in processes that can be killed.

A worker is a fresh interpreter that imports the function by its name, calls it in its main thread, and waits for the
next call. `pool` keeps workers, `conversation` is the parent's side of a call, `worker` the child's, `wire` what they
say.

Why not what exists: `multiprocessing` runs the program's ``__main__`` again in each child, starts a resource tracker
that outlives them, and joins children when the interpreter exits; `ProcessPoolExecutor` and what is built on it cannot
stop one call; `anyio.to_process` kills the worker, but not what the function has started. Here a worker leads a process
group of its own (see `heaveto.tools.group`), talks through a socket that nothing but the protocol uses, so that
printing cannot corrupt it, and watches that socket: when the parent dies, by kill -9 too, it ends with all that it has
started.
"""
