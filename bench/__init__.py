"""Compares Lograft with Apache Kafka on one machine: `python -m bench --help`.

`generator.py` generates the load in a separate process, which sends frames that were encoded before
the measurement. `workloads.py` defines the workloads and runs each against both servers in turn.
`process.py` reads the resource usage of a broker from the kernel. `swarm.py` runs thousands of
clients with a connection each, whose requests are in `members.py` and `transaction_load.py`.
`targets.py` holds the targets as ratios, `report.py` prints and plots the results.

Compare the ratios within a run: absolute figures depend on the machine.
"""
