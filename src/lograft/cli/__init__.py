"""The command line `lograft`.

Entry point: `main.main`. The commands' options stand in `main`; what they do is imported when they
run, so that `lograft --help` answers at once. An error is one sentence on stderr and exit code 1
(2 when the command line itself is wrong), never a stack trace.
"""
