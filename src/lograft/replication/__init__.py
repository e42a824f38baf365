"""Replication in ISR mode as state machines without I/O: what counts as committed, who is in sync,
where logs part.

Entry points: `replica.IsrReplica` is one replica and takes roles as the metadata says;
`isr_leader.IsrLeader` and `isr_follower.IsrFollower` are the roles, told what happened and
answering with what to do (`types.Effects`, `types.FollowerEffects`); `roles` says what the shell
needs of a replica and its roles, in any mode.

Invariants: log start <= high watermark <= log end on every replica; a replica's high watermark
never falls; below it all replicas hold the same; what acks=all was told about is below the high
watermark of every later leader.
"""
