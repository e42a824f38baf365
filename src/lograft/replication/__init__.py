"""What a leader may call committed: state machines without I/O.

A partition's shell (`broker/partition.py`) tells its leader what was appended and what became
durable, and asks for the high watermark. `leader.SoleReplica` is the rule for a partition with
one replica; the rules with followers take the same place.
"""
