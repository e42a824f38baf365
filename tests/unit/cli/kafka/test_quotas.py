"""Quotas with `lograft kafka-configs`, and the output of Kafka's tool for the same calls."""

from collections.abc import Iterator

import pytest

from lograft.cli.kafka.configs import run
from lograft.cli.kafka.quotas import format_double
from lograft.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1024.0, "1024.0"),
        (12.5, "12.5"),
        (9_999_999.0, "9999999.0"),
        (10_000_000.0, "1.0E7"),
        (10_485_760.0, "1.048576E7"),
        (0.0005, "5.0E-4"),
    ],
)
def test_numbers_are_printed_as_by_java(value: float, text: str) -> None:
    assert format_double(value) == text


def test_quotas_are_set_described_and_deleted(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def configs(words: str) -> tuple[int, str]:
        try:
            code = run(["--bootstrap-server", cluster.bootstrap_servers, *words.split()])
        except SystemExit as end:
            code = int(str(end.code))
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    alice = "--entity-type users --entity-name alice"
    both = "--entity-type users --entity-default --entity-type clients --entity-name c1"
    values = "producer_byte_rate=1024,request_percentage=12.5"
    assert configs(f"--alter {alice} --add-config {values}") == (
        0,
        "Completed updating config for user alice.\n",
    )
    assert configs(f"--alter {both} --add-config consumer_byte_rate=5") == (
        0,
        "Completed updating default config for users in the cluster.\n",
    )
    assert configs("--alter --ip-defaults --add-config connection_creation_rate=5") == (
        0,
        "Completed updating default config for ips in the cluster.\n",
    )
    of_alice = (
        "Quota configs for user-principal 'alice' are producer_byte_rate=1024.0,"
        " request_percentage=12.5\n"
    )
    assert configs("--describe --entity-type users") == (0, of_alice)
    assert configs("--describe --user alice") == (0, of_alice)
    assert configs("--describe --entity-type users --entity-type clients") == (
        0,
        "Quota configs for the default user-principal, client-id 'c1' are consumer_byte_rate=5.0\n",
    )
    assert configs(f"--describe {alice} --entity-type clients") == (0, "")
    assert configs("--describe --entity-type clients") == (0, "")
    assert configs("--describe --entity-type ips") == (
        0,
        "Quota configs for the default ip are connection_creation_rate=5.0\n",
    )
    for words, reason in (
        (f"{alice} --delete-config consumer_byte_rate", "Invalid config(s): consumer_byte_rate"),
        (f"{alice} --add-config producer_byte_rate=x", "Cannot parse quota configuration value"),
        ("--entity-type clients --entity-default --add-config a=1", "Only quota configs"),
        ("--ip 10.0.0.1 --add-config producer_byte_rate=1", "Only connection quota configs"),
        ("--entity-type users --add-config producer_byte_rate=1", "must be specified with --alter"),
        ("--user a --ip 10.0.0.1 --add-config producer_byte_rate=1", "may be specified together"),
    ):
        code, text = configs(f"--alter {words}")
        assert (code, reason in text) == (1, True), text
    assert configs(f"--alter {alice} --delete-config producer_byte_rate,request_percentage")[0] == 0
    assert configs("--describe --entity-type users") == (0, "")
