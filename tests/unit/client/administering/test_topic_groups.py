"""The lists of groups that read a topic, on simulated clusters."""

from lograft.client.admin import Admin, NewTopic, TopicPartition
from lograft.testing import VirtualCluster
from tests.support.scenarios import scenario
from tests.unit.client.administering.admin_scenarios import fill, play


@scenario(play)
async def test_the_owner_of_a_ptp_topic_is_listed_if_other_groups_have_no_access(
    cluster: VirtualCluster, admin: Admin, /
) -> None:
    await admin.create_topics([NewTopic("pt", configs={"subscription.mode": "ptp"}), "free"])
    await fill(cluster, "pt", 5)
    await admin.alter_group_offsets("owner", {TopicPartition("pt", 0): 2})
    await admin.alter_group_offsets("audit", {TopicPartition("free", 0): 0})
    found = await admin.list_topic_groups(["pt", "free"])
    assert (found["pt"].mode, found["pt"].owner) == ("ptp", "owner")
    assert [(group.group, group.lag) for group in found["pt"].groups] == [("owner", 3)]
    assert (found["free"].mode, found["free"].owner) == ("psb", None)
    assert [(group.group, group.lag) for group in found["free"].groups] == [("audit", 0)]
