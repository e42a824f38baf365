"""The command line `lograft`.

Entry point: `main.main`. The `*_commands.py` modules define the commands and their options; the
modules that do the work are imported when a command runs, so that `lograft --help` starts fast.
Commands use the client (`client_runner.py`) and connect to the cluster that `contexts.py` selects.
A failed command prints one error message to stderr, never a stack trace, and exits with code 1 (2
for a usage error, 3 if no server could be reached). `kafka/` contains Kafka's own tools.
"""
