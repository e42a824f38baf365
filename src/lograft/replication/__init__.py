"""Replication of a partition, as state machines without I/O: what is committed, which replicas are
in sync, where two logs diverge.

A partition is in one of two modes. In isr mode the high watermark is the lowest log end among the
in-sync replicas, and the controller elects leaders. In raft mode the replicas are the voters of a
Raft group (`consensus/`) and elect their leader themselves.

Entry points: `roles.PartitionReplica` is the protocol of a replica, `LeaderRole` and `FollowerRole`
those of its roles. `replica.IsrReplica` implements it for isr mode, with the roles of `isr_leader`
and `isr_follower`; `raft_modes.ModeReplica` for a replica that can switch between the modes, with
the roles of `raft_roles` in raft mode. The shell (`broker/replicas/`) reports every event, with
the time, and executes the returned effects (`types.Effects`, `types.FollowerEffects`).

Invariants: log start <= high watermark <= log end on every replica; the high watermark of a replica
never decreases, except after an unclean election that loses records; below the high watermark all
replicas have the same records; a batch that was acknowledged with acks=all is below the high
watermark of every later leader.
"""
