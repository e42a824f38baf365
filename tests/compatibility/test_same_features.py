"""The same updates of features get the same responses, and have the same effect, on both servers.

Error messages are not compared. Lograft does not finalize share.version and streams.version for its
clients, because they would choose protocols by them; the metadata log has their levels.
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from lograft.model.errors import ErrorCode
from lograft.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lograft.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.compatibility.java_tools import JavaTools
from tests.compatibility.raw_requests import ask, connect
from tests.compatibility.servers import KINDS, Server, compares_two

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), compares_two()]
UPGRADE, SAFE, UNSAFE = 1, 2, 3
METADATA: Final = "metadata.version"
ELR: Final = "eligible.leader.replicas.version"
#: Stored in the log by Lograft, but not finalized for clients.
STORED: Final = ("share.version", "streams.version")
OURS: Final = "lograft.replication.version"
FEATURES: Final = (
    METADATA,
    "kraft.version",
    "group.version",
    "transaction.version",
    ELR,
    *STORED,
    "unknown.version",
)
PATIENCE_SECONDS: Final = 10.0
FAILURE: Final = re.compile(r"(Could not \w+ \S+ to \d+\.).*")
Update = tuple[dict[str, int], int]


def single_updates() -> Iterator[Update]:
    for kind in (UPGRADE, SAFE, UNSAFE, 0, 9):
        for name in FEATURES:
            for level in (0, 1, 2, 3, -1):
                yield {name: level}, kind
        for level in (6, 7, 20, 21, 23, 25, 29, 30, 31):
            yield {METADATA: level}, kind


def combined_updates() -> Iterator[Update]:
    yield {METADATA: 30, ELR: 1}, UPGRADE
    yield {METADATA: 22, ELR: 1}, UPGRADE
    yield {METADATA: 30, "group.version": 2}, UPGRADE
    yield {"group.version": 0, "transaction.version": 0}, SAFE
    yield {"group.version": 1, "transaction.version": 2}, UPGRADE
    yield dict.fromkeys(STORED, 0), UNSAFE
    yield dict.fromkeys(STORED, 1), UPGRADE


def quorum_updates() -> Iterator[Update]:
    """Static voters become dynamic with the first level. Together with a rejected feature the
    servers differ: Kafka upgrades kraft.version nevertheless, Lograft changes nothing."""
    yield {"kraft.version": 1}, UPGRADE
    yield {"kraft.version": 1, "group.version": 1}, UPGRADE
    yield {"kraft.version": 0}, SAFE
    yield {"kraft.version": 0}, UNSAFE


def answer_of(server: Server, update: Update, version: int, *, validate_only: bool) -> Any:
    levels, kind = update
    request = UpdateFeaturesRequest(
        timeout_ms=10_000,
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                upgrade_type=kind if version else 1,
                allow_downgrade=kind != UPGRADE and not version,
            )
            for name, level in levels.items()
        ],
        validate_only=validate_only and version > 0,
    )
    with connect(server) as connection:
        answer = ask(connection, request, version)
    assert isinstance(answer, UpdateFeaturesResponse)
    return (
        ErrorCode(answer.error_code).name,
        bool(answer.error_message),
        sorted((result.feature, result.error_code) for result in answer.results),
    )


def finalized(server: Server) -> dict[str, int]:
    with connect(server) as connection:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = ask(connection, request, 4)
    assert isinstance(answer, ApiVersionsResponse)
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def comparable(levels: dict[str, int]) -> dict[str, int]:
    return {name: level for name, level in levels.items() if name not in (*STORED, OURS)}


def formatted(server: Server, release: str, *, is_static: bool = False) -> Server:
    server.format_arguments = ("--release-version", release)
    if is_static:
        server.voters = f"{server.node_id}@{server.controller}"
    return server


def all_answers(server: Server) -> list[tuple[str, Any]]:
    answers: list[tuple[str, Any]] = []

    def ask_for(update: Update, version: int, *, validate_only: bool) -> None:
        what = f"{update} in version {version}, validate only {validate_only}"
        answer = answer_of(server, update, version, validate_only=validate_only)
        answers.append((what, answer))
        if not validate_only:
            wanted = update[0] if answer[0] == "NONE" else {}
            answers.append((f"{what}: levels", await_levels(server, wanted)))

    # A Kafka of the newest release has them from the beginning.
    ask_for((dict.fromkeys(STORED, 1), UPGRADE), 2, validate_only=False)
    for version in (1, 2):
        for update in (*single_updates(), *combined_updates()):
            ask_for(update, version, validate_only=True)
    answers.append(("levels after validating only", comparable(finalized(server))))
    for version in (0, 1, 2):  # version 0 cannot only validate
        for update in (*combined_updates(), *quorum_updates()):
            ask_for(update, version, validate_only=False)
    return answers


def await_levels(server: Server, wanted: dict[str, int]) -> dict[str, int]:
    """Kafka's broker applies the new levels a moment after the response."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        levels = comparable(finalized(server))
        is_known = all(levels.get(name, 0) == level for name, level in comparable(wanted).items())
        if is_known or time.monotonic() > deadline:
            return levels
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("release", "is_static"), [("4.3", False), ("4.2", False), ("3.9", False), ("3.9", True)]
)
def test_every_update(new_server: Callable[..., Server], release: str, is_static: bool) -> None:
    results = {}
    for kind in KINDS:
        server = formatted(new_server(kind), release, is_static=is_static)
        with server.started():
            results[kind] = all_answers(server)
        # controller.quorum.voters is still in the file.
        with server.started():
            results[kind].append(("levels after a restart", comparable(finalized(server))))
    different = [
        f"{what}: Kafka {kafkas}, Lograft {ours}"
        for (what, kafkas), (_, ours) in zip(results["kafka"], results["lograft"], strict=True)
        if kafkas != ours
    ]
    assert not different, "\n".join(different)


@pytest.mark.parametrize(
    "orders",
    [
        [("upgrade", "--release-version", "4.3")],
        [
            ("upgrade", "--metadata", "4.2-IV1"),
            ("downgrade", "--metadata", "4.0-IV1"),
            ("downgrade", "--metadata", "4.0-IV0"),
            ("upgrade", "--feature", "share.version=1", "--feature", "group.version=1"),
            ("disable", "--feature", "share.version"),
            ("upgrade", "--release-version", "4.3"),
            ("downgrade", "--release-version", "4.2"),
        ],
    ],
    ids=["release", "several"],
)
@pytest.mark.parametrize("is_static", [False, True])
def test_kafka_features_says_the_same(
    new_server: Callable[..., Server],
    java_tools: JavaTools,
    orders: list[tuple[str, ...]],
    is_static: bool,
) -> None:
    results = {}
    for kind in KINDS:
        with formatted(new_server(kind), "3.9", is_static=is_static).started() as server:
            at = ("--bootstrap-server", server.bootstrap)
            runs = [java_tools.run("FeatureCommand", *at, *order) for order in orders]
            results[kind] = [(run.code, without_reasons(run.text)) for run in runs]
            if kind == "lograft":
                levels = finalized(server)
                assert (levels[METADATA], levels["kraft.version"]) == (30, 1)
                assert not levels.keys() & set(STORED)
                log = server.log_path.read_text()
                assert (
                    log.count("share.version 1 and streams.version 1: the levels are stored") == 1
                )
    assert results["lograft"] == results["kafka"]


def without_reasons(text: str) -> list[str]:
    """Failures are compared without the error messages."""
    return [FAILURE.sub(r"\1", line) for line in text.splitlines()]
