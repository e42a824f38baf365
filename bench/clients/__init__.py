"""Compares Python clients on the same broker by their cost per message.

    python -m bench.clients [--quick] [--client NAME …] [--workload NAME …]

Each measurement runs in a separate process (`worker.py`). The clients alternate, and the median of
several rounds is reported. All clients send with acks=all and idempotence, in batches of up to 64
KiB with a linger of 5 ms, without compression. `lograft-arrow` is the client of `lograft` with its
Arrow methods `send_arrow` and `fetch_arrow`.
"""
