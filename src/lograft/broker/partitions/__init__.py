"""The data path: partitions, delayed requests, fetch sessions, flushes.

`Partition` joins a log with its replication role. Append and read are synchronous; waits are named
`wait_…`. Everything that serves records to clients or followers passes through here.

Invariants: no await between a check and the act it allows; log start <= high watermark <= log end;
an acknowledgement is released only by the role that its batch was appended under.
"""
