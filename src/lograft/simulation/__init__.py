"""Deterministic simulator: runs whole nodes in one thread, under virtual time, from a single seed.

Production code runs unchanged; only the seams of `model/seams.py` are replaced. The same seed
produces the same run, verified by its trace hash, on every machine and with every PYTHONHASHSEED.

Invariants of the room:

* Every random draw comes from a named stream of the seed (`trace.Streams`), so an additional draw
  in one stream never affects another.
* No code here reads the real clock or real files, opens sockets or starts threads.
* A process that died (`SimulatedCrash`, `Process.kill`) never runs another callback and never
  accesses the disk again.

Entry points: `cluster.SimulatedCluster`; for tests `lograft.testing`. Campaigns over many seeds,
with their workloads, checkers and mutants, are in the package `campaigns` of the repository, which
is not part of the wheel."""
