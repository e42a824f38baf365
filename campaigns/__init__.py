"""Campaigns over the simulator: `python -m campaigns run | replay | mutants | report`.

A campaign runs many seeds of one kind. This package contains the workloads, fault plans and
checkers, the mutants that the checkers must catch, the ledger of seeds, the shrinking of failures
and the report. The simulated world itself (loop, clock, disk, network, machines, cluster) is
`lograft.simulation`, which is part of the wheel because `lograft.testing` needs it. The campaigns
are not part of the wheel, and nothing in `src` imports them.

Every random draw of a run comes from a named stream of its seed, and the fault plan is drawn before
the run starts.

Entry points: `run.KINDS`, one function per kind, over `storage_torture.torture`, `node.run_node`,
`raft_run.run_raft`, `cluster_run.run_cluster`, `clients_run` and `groups.run`.
"""
