"""Replication between brokers: follower fetches, ISR changes, Raft partitions and their votes.

`Replicas` gives each partition the role that the metadata or its voters decide (`replication/`),
and runs one fetch stream per leader (`ReplicaFetcher`) and one session per follower
(`follower_sessions`).

Invariants: a fetch offset promises that everything below it is in the log, and on disk where the
mode asks for it; the vote of a Raft partition is on disk before it is answered.
"""
