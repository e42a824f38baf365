"""The command line `lograft`.

Entry point: `main.main`. Commands and their options stand in `*_commands.py`; what they do is
imported when they run, so that `lograft --help` answers at once. They ask through the client
(`connecting.py`), of the cluster that `contexts.py` finds. An error is one sentence on stderr and
exit code 1 (2 when the command line itself is wrong, 3 when no server answers), never a stack
trace. `kafka/` has Kafka's own tools.
"""
