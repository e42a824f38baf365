"""Group and transaction coordinators on the partitions of their internal topics.

`CoordinatorRuntime` loads a shard of `coordination/` when this broker leads its partition, runs its
commands, appends their records and releases replies when they are committed. A new kind of
coordinator (share groups, subscriptions) is one more `CoordinatorKind`.

Invariants: no request is served before the log is replayed; a reply is released only in the leader
epoch that wrote its records.
"""
