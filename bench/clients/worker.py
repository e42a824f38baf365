"""Measures one client in a separate process. Prints the figures as JSON on the last line."""

import argparse
import json
import logging

from bench.clients.work import Client, Order, work_of


def client_of(name: str) -> Client:
    """Imported here, so that a client does not load the libraries of the others."""
    if name == "confluent-kafka":
        from bench.clients.confluent_client import CONFLUENT

        return CONFLUENT
    if name == "aiokafka":
        from bench.clients.aiokafka_client import AIOKAFKA

        return AIOKAFKA
    if name == "kafka-python":
        from bench.clients.kafka_python_client import KAFKA_PYTHON

        return KAFKA_PYTHON
    from bench.clients.lograft_client import LOGRAFT, LOGRAFT_ARROW

    return LOGRAFT_ARROW if name == "lograft-arrow" else LOGRAFT


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("client")
    parser.add_argument("workload")
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("size", type=int)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    work = work_of(client_of(given.client), given.workload)
    assert work is not None, "the parent requests only existing workloads"
    order = Order(given.servers, given.topic, given.size, given.seconds)
    print(json.dumps(work(order)))


if __name__ == "__main__":
    main()
