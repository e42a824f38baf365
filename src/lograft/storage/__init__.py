"""The log of one partition, in Kafka's files: segments, indexes, producer state, recovery,
retention and compaction. Synchronous; touches the disk only through the Disk seam.

Entry points: `log.Log.open` and its methods; `log_dirs` for the checkpoint and identity files of
a log dir; `cleaner` for compaction.

Invariants:
- log_start <= durable_offset <= end_offset; everything below durable_offset has been fsynced.
- A batch is in the log whole or not at all; after a stop of any kind what is left is a prefix.
- Bytes below the recovery point are never cut away: what is wrong there is reported by name.
- Indexes, producer state and leader epochs are derived: a replay of the batches gives the same.
- After an OSError the log takes no more writes (a failed write or fsync is final).
"""
