from lograft.security import authorization
from lograft.security.authorization import CLUSTER_NAME, Operation, Permission, ResourceType


def test_the_numbers_are_kafkas() -> None:
    """Those of ACLs in requests and records."""
    assert [(each.name, each.value) for each in Operation] == [
        ("read", 3),
        ("write", 4),
        ("create", 5),
        ("delete", 6),
        ("alter", 7),
        ("describe", 8),
        ("cluster_action", 9),
        ("describe_configs", 10),
        ("alter_configs", 11),
        ("idempotent_write", 12),
        ("create_tokens", 13),
        ("describe_tokens", 14),
        ("two_phase_commit", 15),
    ]
    assert [(each.name, each.value) for each in ResourceType] == [
        ("topic", 2),
        ("group", 3),
        ("cluster", 4),
        ("transactional_id", 5),
        ("delegation_token", 6),
        ("user", 7),
    ]
    assert CLUSTER_NAME == "kafka-cluster"


def test_a_permission_is_named_after_what_it_is() -> None:
    found = {
        name: value for name, value in vars(authorization).items() if isinstance(value, Permission)
    }
    assert found["CLUSTER_ACTION"] == (Operation.cluster_action, ResourceType.cluster)
    for name, (operation, resource_type) in found.items():
        if name != "CLUSTER_ACTION":
            assert name == f"{resource_type.name}_{operation.name}".upper()
    assert len(set(found.values())) == len(found)
