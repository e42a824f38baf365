from pathlib import Path

import pytest

from lograft.cli.node_runner import read_config
from lograft.cli.provider_sources import resolve_variables
from lograft.model.errors import InvalidConfig, InvalidInput
from lograft.model.settings.providers import ProviderKind
from lograft.model.settings.resolution import describe_broker

SECRET = "correct horse"


def properties(folder: Path, **values: str) -> dict[str, str]:
    """Returns the values and the declarations of the three providers."""
    secrets = folder / "secrets"
    secrets.mkdir(exist_ok=True)
    (secrets / "store.properties").write_text(f"password={SECRET}\ncount=7\n", encoding="utf-8")
    (secrets / "rack").write_text("rack-1", encoding="utf-8")
    return {
        "config.providers": "file,directory,environment",
        "config.providers.file.class": ProviderKind.FILE.value,
        "config.providers.file.param.allowed.paths": str(secrets),
        "config.providers.directory.class": ProviderKind.DIRECTORY.value,
        "config.providers.directory.param.allowed.paths": str(secrets),
        "config.providers.environment.class": ProviderKind.ENVIRONMENT.value,
        "config.providers.environment.param.allowlist.pattern": "LOGRAFT_.*",
    } | {name.replace("_", "."): value for name, value in values.items()}


def test_each_provider_resolves_its_variables(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    resolved = resolve_variables(
        properties(
            tmp_path,
            ssl_key_password=f"${{file:{secrets}/store.properties:password}}",
            broker_rack=f"<${{directory:{secrets}:rack}}>",
            num_partitions="1${environment:LOGRAFT_COUNT}",
            unknown="${vault:a:b}",
        ),
        environment={"LOGRAFT_COUNT": "2"},
    )
    assert resolved["ssl.key.password"] == SECRET
    assert resolved["broker.rack"] == "<rack-1>"
    assert resolved["num.partitions"] == "12"
    assert resolved["unknown"] == "${vault:a:b}"


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("${file:{secrets}/store.properties:other}", "a key that is not in the file"),
        ("${file:{secrets}/missing:password}", "cannot be read: No such file or directory"),
        ("${file:{secrets}/../outside.properties:a}", "not below a path of config.providers.file"),
        ("${file:{secrets}-2/x:a}", "not below a path of config.providers.file"),
        ("${file:password}", "has no path"),
        ("${directory:{secrets}:missing}", "cannot be read"),
        ("${directory:{secrets}:../outside.properties}", "the name of a file in the directory"),
        ("${directory:/etc:hostname}", "not below a path of config.providers.directory"),
        ("${environment:HOME}", "not allowed by config.providers.environment.param.allowlist"),
        ("${environment:LOGRAFT_MISSING}", "an environment variable that is not set"),
        ("${environment:/etc:LOGRAFT_COUNT}", "has a path"),
    ],
)
def test_a_variable_without_a_value_is_an_error(
    tmp_path: Path, variable: str, problem: str
) -> None:
    (tmp_path / "outside.properties").write_text("a=b", encoding="utf-8")
    text = variable.replace("{secrets}", str(tmp_path / "secrets"))
    with pytest.raises(InvalidConfig, match=r"^broker\.rack: \$\{.*\} .*" + problem):
        resolve_variables(
            properties(tmp_path, broker_rack=text), environment={"HOME": "/", "LOGRAFT_COUNT": "2"}
        )


def test_an_allowed_path_must_exist(tmp_path: Path) -> None:
    values = properties(tmp_path) | {
        "config.providers.file.param.allowed.paths": str(tmp_path / "missing")
    }
    with pytest.raises(InvalidConfig, match="missing', which does not exist"):
        resolve_variables(values)


def test_an_invalid_value_is_not_shown(tmp_path: Path) -> None:
    text = f"${{file:{tmp_path}/secrets/store.properties:password}}"
    with pytest.raises(InvalidConfig) as caught:
        resolve_variables(properties(tmp_path, num_partitions=text))
    assert "num.partitions" in str(caught.value)
    assert text in str(caught.value)
    assert SECRET not in str(caught.value)


def server_properties(folder: Path, **values: str) -> Path:
    path = folder / "server.properties"
    complete = properties(folder, **values) | {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in complete.items()))
    return path


def test_a_configuration_file_is_read_with_its_variables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secrets = f"{tmp_path}/secrets/store.properties"
    path = server_properties(
        tmp_path,
        ssl_key_password=f"${{file:{secrets}:password}}",
        num_partitions=f"${{file:{secrets}:count}}",
        my_own_password=f"${{file:{secrets}:password}}",
    )
    config = read_config(str(path))
    assert config.num_partitions == 7
    assert config.secret("ssl.key.password") == SECRET
    shown = describe_broker(config)
    assert SECRET not in repr(shown)
    assert SECRET not in repr(config)
    warning = capsys.readouterr().err
    assert "my.own.password" in warning
    assert "config.providers" not in warning
    assert SECRET not in warning


def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = server_properties(tmp_path, broker_rack="${environment:LOGRAFT_MISSING}")
    with pytest.raises(InvalidInput, match=rf"^{path}: broker.rack: "):
        read_config(str(path))
