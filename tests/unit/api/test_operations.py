from lograft.api.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS


def test_bit_fields_are_kafkas() -> None:
    """As a broker of Apache Kafka without an authorizer reports them."""
    assert (TOPIC_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 8096)
