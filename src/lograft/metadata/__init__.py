"""The cluster's state, replayed from a log of records, and the decisions that create new records.

`image.MetadataImage` changes only by replaying records, so the same log gives the same image on
every node. `image.records()` returns records that rebuild it (a snapshot).
Decisions are functions of an image and a request. They return a `ControllerResult`: the records to
append and the reply to send once they are committed. They change nothing themselves.

One file per family of decisions: `topics`, `partitions`, `configs`, `brokers`, `features`,
`producer_ids`, `directories`, `alter_partition`, `elect_leaders`, `reassignment`, `rebalancing`,
`mode_switch`, `activation`. `placement` selects the brokers of a new partition. Every change of an
existing partition is built in `elections`, under the rules of `leadership_rules`.

Invariants: the records between a BeginTransactionRecord and its EndTransactionRecord take effect
atomically. The leader epoch and the partition epoch of a partition never decrease. A topic id is
never reused. Every replica in the ISR or the ELR has all committed records, unless the partition
is recovering.
"""
