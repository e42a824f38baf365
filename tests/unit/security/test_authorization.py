from lograft.security import authorization
from lograft.security.authorization import CLUSTER_NAME, Operation, Permission, ResourceType


def test_numbers_match_kafkas_acls() -> None:
    """The numbers of ACLs in requests and records."""
    assert [(each.name, each.value) for each in Operation] == [
        ("READ", 3),
        ("WRITE", 4),
        ("CREATE", 5),
        ("DELETE", 6),
        ("ALTER", 7),
        ("DESCRIBE", 8),
        ("CLUSTER_ACTION", 9),
        ("DESCRIBE_CONFIGS", 10),
        ("ALTER_CONFIGS", 11),
        ("IDEMPOTENT_WRITE", 12),
        ("CREATE_TOKENS", 13),
        ("DESCRIBE_TOKENS", 14),
        ("TWO_PHASE_COMMIT", 15),
    ]
    assert [(each.name, each.value) for each in ResourceType] == [
        ("TOPIC", 2),
        ("GROUP", 3),
        ("CLUSTER", 4),
        ("TRANSACTIONAL_ID", 5),
        ("DELEGATION_TOKEN", 6),
        ("USER", 7),
    ]
    assert CLUSTER_NAME == "kafka-cluster"


def test_permissions_are_named_after_resource_and_operation() -> None:
    found = {
        name: value for name, value in vars(authorization).items() if isinstance(value, Permission)
    }
    assert found["CLUSTER_ACTION"] == (Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    for name, (operation, resource_type) in found.items():
        if name != "CLUSTER_ACTION":
            assert name == f"{resource_type.name}_{operation.name}"
    assert len(set(found.values())) == len(found)
