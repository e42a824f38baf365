import pytest

from lograft.cli.node_runner import embedded_properties
from lograft.model.errors import InvalidConfig
from lograft.model.seams import Address
from lograft.model.settings.broker import broker_config
from lograft.model.settings.otlp import OtlpSettings, otlp_settings


def settings_of(**settings: str) -> OtlpSettings | None:
    values = {f"lograft.otlp.{name.replace('_', '.')}": value for name, value in settings.items()}
    return otlp_settings(broker_config(embedded_properties("data", 9092) | values))


def test_nothing_is_exported_by_default() -> None:
    assert settings_of() is None


def test_the_defaults() -> None:
    settings = settings_of(endpoint="http://collector")
    assert settings is not None
    assert (settings.address, settings.uses_tls) == (Address("collector", 4318), False)
    assert (settings.path, settings.headers) == ("", ())
    assert (settings.metrics_interval_ms, settings.exports_traces) == (60_000, False)
    assert (settings.traces_ratio, settings.opens_compressed) == (1.0, False)


def test_an_endpoint_with_tls_a_path_and_headers() -> None:
    settings = settings_of(
        endpoint="https://collector:443/otlp/", headers="authorization=Bearer a=b, x-tenant=c"
    )
    assert settings is not None
    assert settings.uses_tls
    assert settings.url == "https://collector:443/otlp"
    assert settings.headers == (("authorization", "Bearer a=b"), ("x-tenant", "c"))
    assert "Bearer" not in repr(settings)


@pytest.mark.parametrize(
    "endpoint",
    [
        "collector:4318",
        "grpc://collector:4317",
        "http://",
        "http://c:99999",
        "http://user:s3cr3t@c",
        "http://c/?token=s3cr3t",
        "http://c/ HTTP/1.1",
    ],
)
def test_endpoints_that_are_rejected(endpoint: str) -> None:
    with pytest.raises(InvalidConfig, match=r"lograft\.otlp\.endpoint takes a URL") as raised:
        settings_of(endpoint=endpoint)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(
    "headers", ["s3cr3t", "a=", "=s3cr3t", "a b=s3cr3t", "a=s3cr3t\r\nb=c", "a=1,Host=s3cr3t"]
)
def test_headers_that_are_rejected(headers: str) -> None:
    with pytest.raises(InvalidConfig, match=r"lograft\.otlp\.headers") as raised:
        settings_of(endpoint="http://c", headers=headers)
    assert "s3cr3t" not in str(raised.value)


def test_traces_need_a_collector() -> None:
    with pytest.raises(InvalidConfig, match=r"set lograft\.otlp\.endpoint"):
        settings_of(traces_enable="true")


@pytest.mark.parametrize(
    "wrong", [{"traces_ratio": "1.5"}, {"metrics_interval_ms": "999"}, {"traces_ratio": "-0.1"}]
)
def test_numbers_out_of_range_are_rejected(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        settings_of(endpoint="http://c", **wrong)
