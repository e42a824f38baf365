"""Logs and disks: opening, recovering, moving, compacting and deleting the logs of all log dirs.

`LogManager` owns the log dirs. Everything that blocks runs in a worker, in one ordered lane per log
dir.

Invariants: a failed write or fsync takes its log dir offline for the life of the process; a folder
is deleted only because of a committed delete record with its topic id.
"""
