"""Raft as a state machine, in KRaft's flavour; no clock, no socket, no file.

`core.RaftCore` takes what happened (`start`, `tick`, `step`, `on_…`) and returns `Effects`: what
the driver must do. Messages are the values of `messages.py`. The roles and every legal move between
them are the table in `roles.py`. One object for each protocol of several steps: `Election`,
`Fetcher` with `SnapshotDownload`, `Leadership`, `VoterChange`; `LogView` is what the core knows of
the log.

Invariants: an epoch or a vote is on disk before anything is done on its strength; an epoch has
one leader at most; the high watermark never falls, and moves only over a record of the leader's
own epoch that a majority of the voters has on disk; a replica says it has only what is on its disk.

The driver's side of the contract:

* One call at a time; the effects of a call are done, in the order of their fields, before the
  next. Only `persist` and the fsync of what was appended may take their time: their ends are told
  by `on_persisted` and `on_durable`, and calls between are fine.
* `persist` is fsynced before `on_persisted`. There is never a second one before that.
* `on_durable(offset)`: everything below is fsynced. Needed once after the start too: what a
  restart finds in the log may be in the page cache only. After a truncation an fsync that was begun
  before it vouches for nothing behind the cut.
* A leader's appends are the driver's own: it appends while `is_leader`, then tells `on_appended`.
  `lead` and `append_voters` ask for control batches, told in the same way.
* Answers that carry records or pieces of a snapshot leave the core empty: the driver fills in what
  `read_from` or `position` ask for. What arrives is described by a `LogSlice`.
* A request's number and its sender's node id say which answer belongs to it. Messages may get lost,
  come late, twice and in any order. An answer must be to a request of this life of the process
  (`first_request_id` keeps lives apart if connections do not).
* `tick` is due at `deadline_ms`; later is safe. There is one such number for each core, so one
  queue of deadlines serves thousands of them.
* `on_snapshot` only for what is committed and fsynced in the own log. At the start the log reaches
  at least to the end of the newest snapshot; a shorter one is replaced by it.
* A snapshot is put in the log's place whole or not at all, and on disk before `on_installed`.
"""
