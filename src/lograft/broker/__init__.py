"""The shell: joins the pure cores with disk, clock, network and tasks through the seams.

| package | subject |
|---|---|
| `links/` | requests between nodes |
| `quorum/` | the metadata quorum and its log on disk |
| `control/` | the active controller, and what brokers tell and ask it |
| `partitions/` | the data path: partitions, waits, fetch sessions, flushes |
| `logs/` | logs and disks: opening, recovering, moving, compacting, deleting |
| `replicas/` | replication between brokers: fetch streams, ISR changes, Raft partitions |
| `coordinators/` | group and transaction coordinators on their internal topics |

`cluster_metadata.ClusterMetadata` owns the metadata image and the configuration that follows from
it. `broker.Broker` joins the packages: it changes its partitions only when the metadata log says
so.

Invariants: everything here runs on one loop; whatever blocks runs in a worker; no await stands
between a check and the act it allows.
"""
