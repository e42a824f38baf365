"""Runs of the kind `groups`: a cluster whose clients are group members and transactional producers.

Nodes, faults, watches and the final comparison are those of the kind `cluster`. This package
contains the clients and their invariants: G1-G6 (`checks.py`, `watch.py`), T1-T9
(`transaction_checks.py`), and delayed or duplicated requests (`late.py`)."""
