"""Raft as a state machine, in KRaft's flavour; no clock, no socket, no file.

`core.RaftCore` receives events (`start`, `tick`, `step`, `on_…`) and returns `Effects`, the actions
that the driver must execute. Messages are the values of `messages.py`. `roles.py` holds the table
of roles and legal transitions. Each protocol of several steps has its own object: `Election`,
`Fetcher` with `SnapshotDownload`, `Leadership`, `VoterChange`. `LogView` is the core's description
of the log.

Invariants: an epoch or a vote is on disk before any action depends on it; an epoch has at most one
leader; the high watermark never decreases, and it advances only past a record of the leader's own
epoch that a majority of the voters has on disk; a replica reports only what is on its disk.

The driver's side of the contract:

* It makes one call at a time and executes the effects of a call, in the order of their fields,
  before the next call. Only `persist` and the fsync of appended records may complete later: the
  driver reports that with `on_persisted` and `on_durable`, and may make other calls in between.
* `persist` is fsynced before `on_persisted`. The core never returns a second one before that.
* `on_durable(offset)`: everything below is fsynced. The driver also calls it once after the start,
  since records found after a restart may be in the page cache only. An fsync that was started
  before a truncation guarantees nothing beyond the truncation point.
* A leader's driver appends records itself while `is_leader`, then calls `on_appended`. `lead` and
  `append_voters` request control batches, which are reported in the same way.
* The core returns responses with records or snapshot chunks empty: the driver fills in the bytes
  that `read_from` or `position` refer to. Received batches are described by a `LogSlice`.
* A response is matched to its request by the request id and the sender's node id. Messages may be
  lost, delayed, duplicated and reordered. A response must belong to a request of this process
  (`first_request_id` separates the processes of a node if connections do not).
* `tick` is due at `deadline_ms`; a later call is safe. Each core has one such deadline, so a single
  queue of deadlines serves thousands of cores.
* `on_snapshot` only reports snapshots of records that are committed, and fsynced in the local log.
  At the start the log reaches at least to the end of the newest snapshot; the driver replaces a
  shorter log by that snapshot.
* A snapshot replaces the log atomically, and is on disk before `on_installed`.
"""
