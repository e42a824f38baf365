"""Raft as a state machine, in KRaft's flavour; no clock, no socket, no file.

`core.RaftCore` takes what happened (`start`, `tick`, `step`, `on_persisted`, `on_appended`,
`on_durable`) and returns `Effects`: what the driver must do, in the order of its fields. The
roles and every legal move between them are the table in `roles.py`.

Invariants: an epoch or a vote is on disk before anything is done on its strength; an epoch has
one leader at most; the high watermark never falls, and moves only over a record of the leader's
own epoch that a majority of the voters has on disk.
"""
