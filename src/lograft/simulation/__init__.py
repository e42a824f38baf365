"""The deterministic simulator: whole nodes in one thread, under virtual time, from one seed.

Production code runs unchanged; only the seams of `model/seams.py` are replaced. The same seed
gives the same run, shown by the same trace hash, on every machine and under every
PYTHONHASHSEED.

Invariants of the room:

* every random draw comes from a named stream of the seed (`trace.Streams`); one more draw in one
  stream never moves another;
* nothing here reads real time, real files, real sockets or starts a thread;
* a process that died (`SimulatedCrash`, `Process.kill`) never runs another callback and never
  touches the disk again.

Entry points: `cluster.SimulatedCluster`; for tests `lograft.testing`. Campaigns of many seeds, with
their workloads, checkers and mutants, are in the package `campaigns` of the repository, which is
not part of the wheel.
"""
