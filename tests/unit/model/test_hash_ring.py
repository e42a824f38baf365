"""The ring only; placement and the assignors have their own tests."""

from lograft.model.hash_ring import Ring, member_name, ring_points, share_partitions


def test_walk_yields_every_node_once_from_the_key() -> None:
    ring = Ring(place for node in range(5) for place in ring_points("node", node, 16))
    assert sorted(ring.walk("key")) == list(range(5))
    assert ring.walk("key") == list(dict.fromkeys(ring.clockwise("key")))
    assert len({tuple(ring.walk(f"key {number}")) for number in range(50)}) > 10


def test_single_subscriber_may_exceed_the_fair_share() -> None:
    shared = share_partitions(["x", "y"], {"a": 10, "b": 2}, {"a": ["x"], "b": ["x", "y"]})
    assert [partition for topic, partition in shared["x"] if topic == "a"] == list(range(10))
    assert shared["y"] == [("b", 0), ("b", 1)]


def test_static_member_is_identified_by_its_instance_id() -> None:
    assert member_name("a-1", "i") == member_name("a-2", "i")
    assert member_name("i", None) != member_name("a", "i")
