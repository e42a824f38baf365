"""Denials and changes of ACLs in the security log."""

import logging

import pytest

from lograft.api.router import Router
from lograft.api.security_log import LINES_MAX, SecurityLog
from lograft.security.authorization import TOPIC_DESCRIBE, TOPIC_READ
from lograft.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from lograft.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lograft.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.scenarios import scenario
from tests.unit.api.secured_bench import USER, acl_of, add_acls, remove_acls, secure
from tests.unit.api.test_secured_fast_paths import fetch, produce
from tests.unit.broker.bench import Bench, Peer, run


def begin_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    log = SecurityLog(bench.broker.clock)
    bench.session("broker")._router.security_log = log
    controller = bench.broker.link.local_controller
    assert isinstance(controller, Router)
    controller.security_log = log
    caplog.set_level(logging.INFO, logger="lograft.security")


@scenario(run)
async def test_denials_are_logged_with_the_rule(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.create_topic("t")
    secure(bench)
    await add_acls(bench, acl_of(TOPIC_READ, "t"), acl_of(TOPIC_DESCRIBE, "*", is_denied=True))
    begin_log(bench, caplog)
    assert await fetch(bench) == 0
    assert await produce(bench) != 0
    await bench.ask(DescribeAclsRequest(), 3, DescribeAclsResponse)
    request = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    await bench.ask(request, 4, FindCoordinatorResponse)
    prefix = f"event=authorization outcome=failure principal={USER}"
    suffix = f"client={Peer.peer}"
    assert caplog.messages == [
        f'{prefix} operation=WRITE resource=TOPIC:t rule="no matching ACL" api=Produce {suffix}',
        f"{prefix} operation=DESCRIBE resource=CLUSTER:kafka-cluster"
        f' rule="no ACL for the resource" api=DescribeAcls {suffix}',
        f"{prefix} operation=DESCRIBE resource=GROUP:g"
        f' rule="no ACL for the resource" api=FindCoordinator {suffix}',
    ]


@scenario(run)
async def test_lists_without_hidden_topics_are_no_denials(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.create_topic("t")
    secure(bench)
    begin_log(bench, caplog)
    await bench.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    assert caplog.messages == []


@scenario(run)
async def test_denials_are_limited_per_source(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.create_topic("t")
    secure(bench)
    begin_log(bench, caplog)
    for _ in range(LINES_MAX * 3):
        await produce(bench)
    assert len(caplog.messages) == LINES_MAX


@scenario(run)
async def test_changes_of_acls_are_logged(
    bench: Bench, /, caplog: pytest.LogCaptureFixture
) -> None:
    secure(bench)
    begin_log(bench, caplog)
    acl = acl_of(TOPIC_READ, "t")
    await add_acls(bench, acl)
    assert await remove_acls(bench, acl, acl) == 2
    prefix = "event=acl-change outcome=success principal=User:admin"
    text = f'"ALLOW {USER} READ TOPIC LITERAL t host *"'
    client = Peer.peer.host
    assert caplog.messages == [
        f"{prefix} created={text} client={client}",
        f"{prefix} deleted={text} client={client}",
    ]
