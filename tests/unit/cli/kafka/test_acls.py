"""`lograft kafka-acls`, with the output that Kafka's tool has printed for the same calls."""

import io
from collections.abc import Callable, Iterator

import pytest

from lograft.cli.kafka.acls import run
from lograft.model.settings.authorizer import STANDARD_AUTHORIZER
from lograft.testing import Cluster

Kafka = Callable[..., tuple[int, str]]

PREFIXED = ("--topic", "orders-", "--resource-pattern-type", "prefixed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Cluster(properties=settings) as cluster:
        yield cluster


@pytest.fixture
def acls(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kafka:
    def call(*words: str, text: str = "") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        try:
            code = run(["--bootstrap-server", cluster.bootstrap_servers, *words])
        except SystemExit as end:
            code = int(str(end.code))
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return call


def entry(principal: str, operation: str) -> str:
    return f"\t(principal={principal}, host=*, operation={operation}, permissionType=ALLOW)\n"


def test_acls_are_added_listed_and_removed(acls: Kafka) -> None:
    pattern = "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)"
    entries = entry("User:alice", "READ") + entry("User:alice", "WRITE")
    operations = ("--operation", "Read", "--operation", "Write")
    added = acls("--add", "--allow-principal", "User:alice", *operations, "--topic", "t")
    assert added == (0, f"Adding ACLs for resource `{pattern}`: \n {entries}\n")
    listed = f"Current ACLs for resource `{pattern}`:\n{entries}\n"
    assert acls("--list", "--topic", "t") == (0, listed)
    assert acls("--list", "--principal", "User:alice") == (
        0,
        f"ACLs for principal `User:alice`\n{listed}",
    )
    assert acls("--list", "--principal", "User:bob") == (0, "ACLs for principal `User:bob`\n")
    question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)\n"
    assert acls("--remove", "--topic", "t", text="n\n") == (0, question)
    assert acls("--list", "--topic", "t") == (0, listed)
    assert acls("--remove", "--topic", "t", text="y\n") == (0, question)
    assert acls("--list") == (0, "")


def test_roles_expand_to_their_operations(acls: Kafka) -> None:
    bob = ("--allow-principal", "User:bob")
    role = ("--producer", "--consumer", "--idempotent", "--group", "g", "--transactional-id", "x")
    assert acls("--add", *bob, *role, *PREFIXED)[0] == 0
    granted = {
        (head.partition("resourceType=")[2].partition(",")[0], line.split("operation=")[1][:5])
        for head, line in _entries(acls("--list")[1])
    }
    assert granted == {
        ("TOPIC", "READ,"), ("TOPIC", "WRITE"), ("TOPIC", "DESCR"), ("TOPIC", "CREAT"),
        ("GROUP", "READ,"), ("TRANSACTIONAL_ID", "WRITE"), ("TRANSACTIONAL_ID", "DESCR"),
        ("CLUSTER", "IDEMP"),
    }  # fmt: skip
    matching = ("--topic", "orders-eu", "--resource-pattern-type")
    assert "name=orders-, patternType=PREFIXED" in acls("--list", *matching, "match")[1]
    assert acls("--list", *matching, "literal") == (0, "")
    assert acls("--remove", *bob, *role, *PREFIXED, "--force") == (0, "")
    assert acls("--list") == (0, "")


def _entries(text: str) -> Iterator[tuple[str, str]]:
    head = ""
    for line in text.splitlines():
        if line.startswith("Current"):
            head = line
        elif line:
            yield head, line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--list", "--add"), "exactly one action: --list, --add, --remove"),
        (("--add", "--topic", "t"), "one of: --allow-principal, --deny-principal"),
        (("--add", "--allow-principal", "User:a"), "at least one resource"),
        (("--add", "--allow-principal", "alice", "--topic", "t"), "but got alice"),
        (("--list", "--allow-principal", "User:a"), "can't be used with"),
        (("--remove", "--topic", "t", "--principal", "User:a"), "only available if --list is set"),
        (("--add", "--allow-principal", "User:a", "--producer"), "must specify a --topic"),
        (("--add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "and a --group"),
        (
            ("--add", "--allow-principal", "User:a", "--topic", "t", "--idempotent"),
            "only available if --producer",
        ),
        (
            ("--add", "--allow-principal", "User:a", *PREFIXED[:3], "match"),
            "'MATCH' is not valid when adding",
        ),
        (
            ("--add", "--allow-principal", "User:a", "--topic", "t", "--operation", "CreateTokens"),
            "ResourceType TOPIC only supports operations",
        ),
        (("--list", *PREFIXED[:3], "nonsense"), "--resource-pattern-type must be one of"),
    ],
)
def test_wrong_calls_end_with_one(acls: Kafka, words: tuple[str, ...], message: str) -> None:
    code, text = acls(*words)
    assert code == 1
    assert message in text
    assert "Traceback" not in text
