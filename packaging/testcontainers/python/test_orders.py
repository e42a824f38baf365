from confluent_kafka import Consumer, Producer
from lograft_container import LograftContainer


def test_an_order_is_consumed() -> None:
    with LograftContainer() as lograft:
        servers = {"bootstrap.servers": lograft.bootstrap_servers}
        producer = Producer(servers)
        producer.produce("orders", b"tea")
        assert producer.flush(30) == 0

        settings = {"group.id": "billing", "auto.offset.reset": "earliest"}
        consumer = Consumer(servers | settings)
        consumer.subscribe(["orders"])
        message = consumer.poll(30)
        consumer.close()
        assert message is not None
        assert message.value() == b"tea"
