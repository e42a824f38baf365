"""The real seams: what the operating system offers behind the Protocols of `model/seams.py`.

Only this room and `net/` touch `os`, `time`, `random`, threads and task creation, so everything
above runs unchanged in the simulator.

Invariants: a descriptor closes when the last holder of its File lets go, never earlier; nothing
here retries a failed write or fsync (the caller takes the log dir offline).

Entry points: `system.system_runtime` builds the six seams, `event_loop.run` runs a coroutine on
the fastest loop there is.
"""
