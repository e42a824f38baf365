"""Coordinators: what becomes of groups, their offsets and transactions, as state over a log.

A core (`types.Core`) is the state of one partition of an internal topic. Its commands decide and
return a `CoordinatorResult`: records, replies and what is to be done once the records are
committed. Hard
state changes only by `replay(record)`, which the runtime
(`broker/coordinators/coordinator_runtime.py`) calls for what was just appended and, on a new
leader, for the whole log; so both are the same state.
Soft state (sessions, parked requests, timers) is what a new leader makes afresh in `on_loaded`.

`group_shard.GroupShard` serves `__consumer_offsets`: the groups of every protocol and `offsets`.
`deadlines.Deadlines` is the one queue of timers a shard has.

Invariants: a reply never rests on a record that could still be lost; a core never asks the clock,
chance or the network: time is an argument, the rest comes in `types.CoordinatorContext`.
"""
