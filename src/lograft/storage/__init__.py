"""The log of one partition, in Kafka's file formats: segments, indexes, producer state, recovery,
retention and compaction. Synchronous; accesses the disk only through the Disk seam.

Entry points: `log.Log.open` and its methods; `log_dirs` for the checkpoint and identity files of a
log dir; `cleaner` for compaction.

Invariants:
- `log_start_offset <= end_offset` and `durable_offset <= end_offset`; everything below
  `durable_offset` has been fsynced.
- A batch is in the log completely or not at all. After a clean stop or a crash, the log contains a
  prefix of what was appended.
- Recovery never truncates below the recovery point; damage there raises an error that names the
  file.
- Indexes, producer state and leader epochs are derived: a replay of the batches reproduces them.
- After an OSError the log accepts no more writes (a failed write or fsync is final).
"""
