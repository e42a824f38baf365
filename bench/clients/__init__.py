"""Clients for Python beside each other on the same broker: what a message costs them.

python -m bench.clients [--quick] [--client NAME …] [--workload NAME …]

Every measurement is a process of its own (`worker.py`); clients take turns, and the median of some
rounds counts. All send with acks=all and idempotence, in batches of up to 64 KiB with a linger of
5 ms, without compression. `lograft-arrow` is the same client as `lograft` with its columns:
`send_arrow` and `fetch_arrow`.
"""
