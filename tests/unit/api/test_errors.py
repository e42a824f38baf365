"""Every error class has an error code."""

import importlib
import pkgutil
from collections.abc import Iterator

import lograft
from lograft.api.errors import CODE_OF, code_of
from lograft.broker.errors import NotLeader
from lograft.model.errors import ErrorCode, LograftError, Rejected
from lograft.storage.errors import OffsetOutOfRange

#: Generated code, or programs other than the node, whose errors clients never get.
WITHOUT_ERRORS = (
    "lograft.wire.messages.",
    "lograft.wire.records.",
    "lograft.cli",
    "lograft.simulation",
    "lograft.spark",
)


def subclasses(kind: type[LograftError]) -> Iterator[type[LograftError]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_every_error_has_a_code() -> None:
    for module in pkgutil.walk_packages(lograft.__path__, "lograft."):
        if not module.name.startswith(WITHOUT_ERRORS):
            importlib.import_module(module.name)
    missing = {
        kind.__qualname__
        for kind in subclasses(LograftError)
        if kind.__module__.startswith("lograft.")
        and not kind.__module__.startswith(WITHOUT_ERRORS)
        and kind not in CODE_OF
    }
    assert missing == set()


def test_examples_of_codes() -> None:
    assert code_of(NotLeader()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(OffsetOutOfRange(1, log_start=2, end=3)) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(Rejected(ErrorCode.INVALID_PARTITIONS, "no")) == ErrorCode.INVALID_PARTITIONS
    assert code_of(LograftError()) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_subclass_has_the_code_of_its_parent() -> None:
    class Special(NotLeader):
        pass

    assert code_of(Special()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
