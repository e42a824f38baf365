"""Coordinators: groups, their offsets and transactions, each as state over a log.

A core (`types.Core`) is the state of one partition of an internal topic. Its commands decide and
return a `CoordinatorResult`: records, replies, and the effects to start once the records are
committed. Hard state changes only in `replay(record)`. The runtime
(`broker/coordinators/coordinator_runtime.py`) calls it for each record that it has just appended
and, on a new leader, for the whole log, so both lead to the same state.
Soft state (sessions, parked requests, timers) is rebuilt by a new leader in `on_loaded`.

`group_shard.GroupShard` serves `__consumer_offsets`: the groups of every protocol and `offsets`.
`deadlines.Deadlines` is the only queue of timers of a shard.

Invariants: a reply never depends on a record that could still be lost. A core never reads the
clock, randomness or the network: time is an argument, the rest comes in
`types.CoordinatorContext`.
"""
