"""The metadata quorum and its log on disk: Raft driver, votes on disk, snapshots, formatting.

`RaftDriver` executes the effects of the Raft core (`consensus/`) for `__cluster_metadata-0` and
reports committed records. It knows nothing of topics or brokers: a second registry of cluster state
would be a package beside this one.

Invariants: epoch and vote are fsynced before they are answered; records are fsynced before they
count; listeners see committed records only, in order, from the first one on.
"""
