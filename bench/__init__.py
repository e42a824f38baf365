"""Lograft beside Apache Kafka on one machine in one run: `python -m bench --help`.

`generator.py` is the load, a process of its own that sends frames encoded beforehand;
`workloads.py` says what is measured and runs it against each server in turn; `process.py` asks the
kernel what a broker used; `swarm.py` is thousands of clients with a connection each, `members.py`
and `transaction_load.py` what they say; `targets.py` holds the promised ratios, `report.py` prints
and plots them.
Ratios of one run count; the machine's absolute figures are only shown.
"""
