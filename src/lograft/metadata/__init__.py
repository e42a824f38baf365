"""The cluster's state as a fold over a log of records, and the decisions that make new records.

`image.MetadataImage` changes only by replaying records, so the same log gives the same image on
every node, and `image.records()` gives back a log prefix that would build it (a snapshot).
Decisions are functions of an image and a request that return a `ControllerResult`: the records to
append
and the reply to release once they are committed. They change nothing themselves.

One file per family of decisions: `topics`, `partitions`, `configs`, `brokers`, `features`,
`producer_ids`, `directories`, `alter_partition`, `elect_leaders`, `reassignment`, `rebalancing`,
`mode_switch`, `activation`. `placement` picks the brokers of a new partition; every change of one
that is there is built in `elections`, on what `conditions` says.

Invariants: records between Begin- and EndTransactionRecord appear at once or not at all; a
partition's leader and partition epochs never fall; a topic id names one topic for ever; who is in
sync, or eligible, holds every committed record unless the partition is recovering.
"""
