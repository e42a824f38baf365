"""Threads that share a producer, without await: python examples/client/threads.py localhost:9092"""

import sys
import threading

from lograft.client import TopicPartition
from lograft.client.blocking import Consumer, Producer


def write(producer: Producer, name: str) -> None:
    for number in range(50):
        producer.enqueue("notes", f"{name} {number}", partition=0)
    producer.send("notes", f"{name} is done", partition=0)


def main(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        threads = [threading.Thread(target=write, args=(producer, name)) for name in ("ann", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Consumer(bootstrap_servers=servers) as consumer:
        notes = TopicPartition("notes", 0)
        consumer.assign([notes])
        consumer.seek_to_beginning(notes)
        count = 0
        for record in consumer:
            count += 1
            if record.offset == 101:
                break
        print("read", count)


if __name__ == "__main__":
    main(sys.argv[1])
