"""The control plane: the active controller, and the requests that brokers send to it.

`Controller` runs the decisions of `metadata/` one at a time and releases replies when their
records are committed. Around it: leader balancing, mode switches, fencing of dead processes. On the
broker's side: registration and heartbeats, directory assignment, topic creation.

Invariants: only the active controller decides; a decision sees every record of the decisions before
it.
"""
