"""The production seams: the operating system behind the Protocols of `model/seams.py`.

Only this room and `net/` use `os`, `time`, `random`, threads and task creation, so that everything
above runs unchanged in the simulator.

Invariants: a descriptor is closed when the last reference to its File is gone, never earlier; a
failed write or fsync is not retried (the caller takes the log dir offline).

Entry points: `system.system_runtime` builds the six seams, `event_loop.run` runs a coroutine in the
fastest available event loop.
"""
