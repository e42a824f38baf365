"""Runs of the kind `groups`: a cluster whose clients are members of groups and transactional.

The same nodes, faults, watches and final comparison as in the kind `cluster`; what clients do, and
what they are held to, is here: G1-G6 (`checks.py`, `watch.py`), T1-T9 (`transaction_checks.py`) and
whole requests that come late or twice (`late.py`).
"""
