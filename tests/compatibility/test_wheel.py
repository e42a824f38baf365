"""The wheel in empty environments, as installed by users without a clone."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from venv import EnvBuilder

import pytest

from lograft import __version__

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
INSTALL_SECONDS_MAX = 300
#: Libraries that an example may need beside Lograft.
OTHERS = ("confluent_kafka", "pyspark", "pytest")

#: Debian's certificates, including that of a proxy.
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class Environment:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        EnvBuilder(with_pip=True).create(folder)

    def install(self, *arguments: str | Path) -> None:
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        self.python(*pip, *arguments, seconds_max=INSTALL_SECONDS_MAX)

    def python(self, *arguments: str | Path, seconds_max: int = 100) -> str:
        return self._run(self.folder / "bin" / "python", "-P", *arguments, seconds_max=seconds_max)

    def lograft(self, *arguments: str) -> str:
        return self._run(self.folder / "bin" / "lograft", *arguments, seconds_max=100)

    def _run(self, *command: str | Path, seconds_max: int) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def node(self) -> Iterator[str]:
        """Yields the address of a node that `lograft start` runs."""
        with node_of([self.folder / "bin" / "lograft"], self.folder) as address:
            yield address


@contextmanager
def node_of(
    lograft: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yields the address of a node that this form of the command `lograft` starts in a folder.
    Ctrl-C in a terminal signals all processes of its foreground job, so this does the same."""
    node = subprocess.Popen(
        [*lograft, "start", "--port", "0"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert node.stdout is not None
        lines = iter(node.stdout.readline, "")
        yield next(line.split()[4] for line in lines if "is listening on" in line)
    finally:
        os.killpg(node.pid, signal.SIGINT)
        node.communicate(timeout=30)
    assert node.returncode == 0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since a build leaves files in the tree that the next build would
    include."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    builder = Environment(folder / "builder")
    builder.python(
        *("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, folder),
        seconds_max=INSTALL_SECONDS_MAX,
    )
    [built] = folder.glob("*.whl")
    assert built.name == f"lograft-{__version__}-py3-none-any.whl"
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("installed"))
    environment.install(wheel)
    return environment


def first_python_example() -> str:
    """The README's examples that need only Lograft and a node."""
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    alone: list[str] = [
        code
        for code in blocks
        if "localhost:9092" in code and not any(name in code for name in OTHERS)
    ]
    return alone[0]


@pytest.mark.timeout(600)
def test_a_node_and_the_first_example(installed: Environment) -> None:
    assert installed.lograft("--version") == f"lograft {__version__}\n"
    with installed.node() as address:
        assert installed.python("-c", first_python_example().replace("localhost:9092", address))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("runner", "arguments"), [("uv", ("uvx", "--from")), ("pipx", ("pipx", "run", "--spec"))]
)
def test_runners_of_applications_start_a_node(
    wheel: Path, tmp_path: Path, runner: str, arguments: tuple[str, ...]
) -> None:
    """Without an installation: `uvx --from WHEEL lograft start`, and the same with pipx."""
    environment = Environment(tmp_path / "environment")
    environment.install(runner)
    program = environment.folder / "bin" / arguments[0]
    lograft: list[str | Path] = [program, *arguments[1:], wheel, "lograft"]
    # With empty caches. Not all of these tools use the system's certificates by default.
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    if SYSTEM_CERTIFICATES.exists():
        variables["SSL_CERT_FILE"] = str(SYSTEM_CERTIFICATES)
    version = subprocess.run(
        [*lograft, "--version"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    assert version.stdout == f"lograft {__version__}\n", version.stderr
    with node_of(lograft, tmp_path, variables) as address:
        sent = [*lograft, "produce", "-b", address, "greetings", "hello"]
        subprocess.run(sent, env=variables, check=True, capture_output=True, timeout=60)


def test_the_demo_runs_without_a_clone(installed: Environment) -> None:
    assert "120,000 events written" in installed.lograft("demo", "--no-spark")
    output = " ".join(installed.lograft("demo").split())
    assert "Skipping the Spark part: PySpark is not installed" in output


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="of Python 3.11: newer ones need newer")
def test_the_oldest_versions(wheel: Path, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounded = project["dependencies"] + project["optional-dependencies"]["arrow"]
    assert all(">=" in requirement for requirement in bounded)
    constraints = tmp_path / "oldest.txt"
    constraints.write_text("\n".join(each.replace(">=", "==") for each in bounded))
    environment = Environment(tmp_path / "environment")
    environment.install("-c", constraints, f"{wheel}[arrow]")
    with environment.node() as address:
        environment.python("-c", first_python_example().replace("localhost:9092", address))
        environment.lograft("topics", "list", "-b", address)
        table = "pa.table({'key': ['a'], 'value': [b'1']})"
        environment.python(
            "-c",
            "import pyarrow as pa\nfrom lograft.client.blocking import Producer\n"
            f"with Producer(bootstrap_servers='{address}') as producer:\n"
            f"    assert producer.send_arrow('columns', {table})",
        )
    environment.lograft("demo", "--no-spark")


@pytest.mark.timeout(600)
def test_the_client_alone(wheel: Path, installed: Environment, tmp_path: Path) -> None:
    """As described in docs/decisions/0016-one-distribution.md."""
    environment = Environment(tmp_path / "environment")
    environment.install("--no-deps", wheel)
    environment.install("cramjam", "crc32c")
    with installed.node() as address:
        environment.python("-c", first_python_example().replace("localhost:9092", address))
    refused = subprocess.run(
        [environment.folder / "bin" / "lograft", "start"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        "lograft: the command line needs typer and rich, which a client-only installation does not"
        " have (pip install lograft)\n"
    )
