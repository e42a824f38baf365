"""The shell: joins the pure cores with disk, clock, network and tasks through the seams.

Two roads pass through here. The data road: `partition.Partition` (append, read, wait), the logs
of all log dirs in `log_manager.LogManager`, long polls in `waiting`. The control road:
`controller.Controller` runs pure decisions and `raft_driver.RaftDriver` makes them durable.
`broker.Broker` joins both: it changes its partitions only when the metadata log says so.

Invariants: everything here runs on one loop; whatever blocks runs in a worker; no await stands
between a check and the act it allows.
"""
