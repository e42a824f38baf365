"""Prometheus and promtool of Debian, started without installing the package's service."""

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.compatibility.servers import free_port
from tools.kafka_jars import REPOSITORY

MONITORING: Final = REPOSITORY / "packaging" / "monitoring"
FOLDER: Final = REPOSITORY / ".cache" / "prometheus"
SECONDS_MAX: Final = 300
START_SECONDS_MAX: Final = 60
SCRAPE_SECONDS: Final = 1


def program(name: str) -> str:
    """Returns the path of `prometheus` or `promtool`, which is unpacked at the first use."""
    installed = shutil.which(name)
    if installed is not None:
        return installed
    path = FOLDER / "usr" / "bin" / name
    if not path.exists():
        unpack()
    return str(path)


def unpack() -> None:
    if shutil.which("apt-get") is None:
        pytest.skip("prometheus is not installed, and this is not Debian")
    FOLDER.mkdir(parents=True, exist_ok=True)
    download = ["apt-get", "download", "prometheus"]
    for attempt in range(2):
        done = subprocess.run(
            download, cwd=FOLDER, capture_output=True, text=True, timeout=SECONDS_MAX
        )
        if done.returncode == 0:
            break
        assert attempt == 0, done.stderr
        subprocess.run(["apt-get", "update"], capture_output=True, timeout=SECONDS_MAX)
    (package,) = FOLDER.glob("prometheus_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, FOLDER], check=True, timeout=SECONDS_MAX)


def promtool(*arguments: str, text: str | None = None) -> tuple[int, list[str]]:
    """Returns its exit code and what it printed."""
    done = subprocess.run(
        [program("promtool"), *arguments],
        input=text,
        capture_output=True,
        text=True,
        cwd=MONITORING,
        timeout=SECONDS_MAX,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def fetch(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}{path}?{query}", timeout=30) as response:
            return json.load(response)["data"]

    def query(self, expression: str) -> list[Any]:
        """Returns the series of the expression at present."""
        result: list[Any] = self.fetch("/api/v1/query", query=expression)["result"]
        return result

    def is_ready(self) -> bool:
        try:
            self.fetch("/api/v1/query", query="1")
        except (OSError, urllib.error.URLError):
            return False
        return True


@contextmanager
def prometheus_of(targets: Sequence[str], folder: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes these addresses, with the alerts of packaging/monitoring."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "1s"},
        "rule_files": [str(MONITORING / "alerts.yaml")],
        "scrape_configs": [{"job_name": "lograft", "static_configs": [{"targets": list(targets)}]}],
    }
    # JSON is YAML.
    (folder / "prometheus.yaml").write_text(json.dumps(settings))
    port = free_port()
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ})
        try:
            prometheus = Prometheus(port)
            deadline = time.monotonic() + START_SECONDS_MAX
            while not prometheus.is_ready():
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                assert time.monotonic() < deadline, "Prometheus does not respond"
                time.sleep(0.1)
            yield prometheus
        finally:
            process.terminate()
            process.wait(timeout=START_SECONDS_MAX)
