"""Tests of the settings in a pipeline's file."""

import pytest

from lograft.model.errors import InvalidConfig
from lograft.spark.pipelines.settings import read_settings

SOURCE = '[source]\nbootstrap = "here:9092"\ntopics = ["a", "b"]\n'
LAKE = SOURCE + '[lake]\nfolder = "/x"\n'
AVRO = 'value = {format = "avro", schema_file = "order.avsc", skip_bytes = 5}\n'


def test_defaults_apply_to_a_minimal_file() -> None:
    settings = read_settings(SOURCE + '[lake]\nfolder = "/x"\n')
    assert settings.source.topics == ("a", "b")
    assert settings.spark.master == "local[*]"
    assert settings.lake is not None
    assert settings.lake.partition_by == ("date",)
    assert settings.windows is None


def test_starting_position_becomes_an_option() -> None:
    assert read_settings(SOURCE).source.stream_options() == {
        "kafka.bootstrap.servers": "here:9092",
        "subscribe": "a,b",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
    }
    timed = read_settings(SOURCE + "starting = 1700000000000\nmax_bytes_per_trigger = 9\n")
    options = timed.source.stream_options()
    assert options["startingTimestamp"] == "1700000000000"
    assert options["maxBytesPerTrigger"] == "9"
    assert "startingOffsets" not in options


def test_client_settings_get_the_prefix_of_their_options() -> None:
    settings = read_settings(
        SOURCE + 'kafka = {"client.id" = "me", "request.timeout.ms" = 5, "check.crcs" = true}\n'
    )
    options = settings.source.options()
    assert options["kafka.check.crcs"] == "true"
    assert options["kafka.client.id"] == "me"
    assert options["kafka.request.timeout.ms"] == "5"


def test_value_format_is_parsed() -> None:
    lake = read_settings(LAKE).lake
    assert lake is not None
    assert lake.value.format == "json"
    lake = read_settings(LAKE + AVRO).lake
    assert lake is not None
    assert (lake.value.format, lake.value.skip_bytes) == ("avro", 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[source", "not valid TOML"),
        ('[source]\ntopics = ["a"]\n', r"source\.bootstrap must be set"),
        (SOURCE + "topcs = 1\n", "did you mean topics"),
        (SOURCE + "max_offsets_per_trigger = 'x'\n", "must be a whole number"),
        (SOURCE + '[lake]\nfolder = "/x"\nformat = "csv"\n', "parquet, delta or iceberg"),
        (LAKE + 'value.format = "xml"\n', "json, avro or protobuf"),
        (LAKE + 'value.format = "avro"\n', r"avro requires value\.schema_file"),
        (
            LAKE + 'value = {format = "protobuf", descriptor_file = "d"}\n',
            r"requires value\.message",
        ),
        (LAKE + 'value = {format = "json", message = "m"}\n', r"does not allow value\.message"),
        (LAKE + "value.skip_bytes = 5\n", "needs format avro or protobuf"),
        (LAKE + AVRO + 'schema = "id BIGINT"\n', "avro uses a schema file"),
        (SOURCE + '[windows]\nfolder = "/x"\n', "either window or session_gap"),
        (SOURCE + '[windows]\nfolder = "/x"\nwindow = "1 minute"\nmode = "x"\n', "append, update"),
        (SOURCE + '[windows]\nfolder = "/x"\nwindow = "1 h"\nmode = "update"\n', "needs windows.t"),
        ('[source]\nbootstrap = "h:1"\ntopics = "a"\n', "must be a list of strings"),
        ('[source]\nbootstrap = "h:1"\ntopics = []\n', "at least one topic"),
        (SOURCE + "max_offsets_per_trigger = true\n", "must be a whole number"),
        (SOURCE + "max_bytes_per_trigger = 0\n", "must be at least 1"),
        (SOURCE + "starting = true\n", "must be text or a whole number"),
        (SOURCE + 'kafka = {"client.id" = ["me"]}\n', r"source\.kafka\.client\.id is"),
        (LAKE + "compact_every = -1\n", "must be at least 0"),
        (SOURCE + "[lake]\nfolder = {a = 1}\n", r"lake\.folder is .* but must be text"),
        (SOURCE + '[audit]\nfolder = "/x"\nhot_keys = -1\n', "must be at least 0"),
    ],
)
def test_invalid_settings_are_rejected(text: str, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        read_settings(text)
