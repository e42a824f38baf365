"""The shell: joins the pure cores with disk, clock, network and tasks through the seams.

| package | subject |
|---|---|
| `links/` | requests between nodes |
| `quorum/` | the metadata quorum and its log on disk |
| `control/` | the active controller, and what brokers request from it |
| `partitions/` | the data path: partitions, waits, fetch sessions, flushes, throttles |
| `logs/` | logs and disks: opening, recovering, moving, compacting, deleting |
| `replicas/` | replication between brokers: fetch streams, ISR changes, Raft partitions and votes |
| `coordinators/` | group and transaction coordinators on their internal topics |

`cluster_metadata.ClusterMetadata` owns the metadata image and the configuration that follows from
it. `client_telemetry.ClientTelemetry` keeps the metrics that clients push (KIP-714). `errors` are
the reasons for which a broker rejects requests. `broker.Broker` joins the packages and creates,
changes and deletes partitions only as the metadata log says.

Invariants: everything here runs on one event loop; whatever blocks runs in a worker; no await
stands between a check and the act that it allows.
"""
