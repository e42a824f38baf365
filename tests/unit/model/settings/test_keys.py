import pytest

from lograft.model.errors import InvalidConfig
from lograft.model.settings.broker_table import BROKER_CONFIGS
from lograft.model.settings.keys import (
    Alteration,
    AlterOperation,
    Between,
    ConfigKey,
    ConfigType,
    Secret,
    apply_alterations,
)
from lograft.model.settings.topic import TOPIC_CONFIGS


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.BOOLEAN, "false", False),
        (ConfigType.INT, "2147483647", 2**31 - 1),
        (ConfigType.INT, "-2147483648", -(2**31)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.SHORT, "+3", 3),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.LIST, " a , b,c ", ("a", "b", "c")),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.STRING, " x ", "x"),
        (ConfigType.PASSWORD, " x", Secret(" x")),
    ],
)
def test_texts_are_parsed_into_typed_values(kind: ConfigType, text: str, value: object) -> None:
    parsed = ConfigKey("a", kind, None).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ConfigType.BOOLEAN, "yes"),
        (ConfigType.BOOLEAN, "1"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, ""),
        (ConfigType.INT, "1_000"),
        (ConfigType.INT, "\N{NO-BREAK SPACE}7"),
        (ConfigType.INT, "٣"),
        (ConfigType.SHORT, "32768"),
        (ConfigType.LONG, "9223372036854775808"),
        (ConfigType.LONG, "1.0"),
        (ConfigType.DOUBLE, "half"),
        (ConfigType.DOUBLE, "nan"),
    ],
)
def test_invalid_texts_are_rejected_with_the_name(kind: ConfigType, text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"Invalid value .* for configuration some\.name: "):
        ConfigKey("some.name", kind, None).parse(text)


def test_error_message_includes_the_limit() -> None:
    key = ConfigKey("n", ConfigType.INT, "1", Between(1, 9))
    with pytest.raises(InvalidConfig, match="at least 1"):
        key.parse("0")
    with pytest.raises(InvalidConfig, match="no more than 9"):
        key.parse("10")


def test_password_is_never_printed() -> None:
    key = BROKER_CONFIGS["ssl.key.password"]
    assert "sesame" not in repr(key.parse("sesame"))
    with pytest.raises(InvalidConfig) as error:
        key.parse("sesame" * 10_000)
    assert "sesame" not in str(error.value)


@pytest.mark.parametrize("table", [BROKER_CONFIGS, TOPIC_CONFIGS], ids=["broker", "topic"])
def test_every_default_is_valid(table: dict[str, ConfigKey]) -> None:
    for key in table.values():
        key.parse(key.default)


@pytest.mark.parametrize(
    ("name", "bad", "hint"),
    [
        ("cleanup.policy", "x", "compact, delete"),
        ("compression.type", "x", "uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "between 1 and 9 or equal to -1"),
        ("leader.replication.throttled.replicas", "x", r"\[partitionId\]:\[brokerId\]"),
        ("leader.replication.throttled.replicas", "none", "It must be '\\*' or a list"),
        ("min.cleanable.dirty.ratio", "1.5", "no more than 1"),
        ("segment.bytes", "5", "at least 1048576"),
        ("segment.bytes", "", "Not a number of type INT"),
    ],
)
def test_topic_settings_have_kafkas_limits(name: str, bad: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        TOPIC_CONFIGS[name].parse(bad)


def test_append_and_subtract_start_from_the_default() -> None:
    def after(operation: AlterOperation, value: str | None, **current: str) -> dict[str, str]:
        change = Alteration("cleanup.policy", operation, value)
        return apply_alterations(TOPIC_CONFIGS, current, [change])

    assert after(AlterOperation.APPEND, "compact") == {"cleanup.policy": "delete,compact"}
    assert after(AlterOperation.APPEND, "delete") == {"cleanup.policy": "delete"}
    assert after(AlterOperation.SUBTRACT, "delete") == {"cleanup.policy": ""}
    assert after(AlterOperation.SET, "compact", other="1") == {
        "cleanup.policy": "compact",
        "other": "1",
    }
    assert after(AlterOperation.DELETE, None) == {}
    with pytest.raises(InvalidConfig, match="Null value"):
        after(AlterOperation.SET, None)


def test_only_lists_can_be_appended_to() -> None:
    change = Alteration("segment.bytes", AlterOperation.APPEND, "1")
    with pytest.raises(InvalidConfig, match=r"append is not allowed.*segment\.bytes"):
        apply_alterations(TOPIC_CONFIGS, {}, [change])
