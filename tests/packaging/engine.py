"""Podman from Debian, configured so that it also runs without systemd and on a restricted
machine."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from tests.packaging.clean_root import CACHE, clean_root, run
from tools.kafka_jars import REPOSITORY, ensure_program

CONTAINERFILE: Final = REPOSITORY / "packaging" / "container" / "Containerfile"
IMAGE: Final = "lograft"
BASE_IMAGE: Final = "localhost/lograft-base"
CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
PROGRAMS: Final = {
    "podman": "podman",
    "runc": "runc",
    "iptables": "iptables",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
}
#: Required by machines without systemd, with both versions of cgroups, or with low limits.
SETTINGS: Final = """\
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
"""
START_SECONDS_MAX: Final = 30


@cache
def ensure_image() -> None:
    """Builds the image `lograft` as described in docs/packaging.md, on a clean Debian as the base
    image."""
    for program, package in PROGRAMS.items():
        ensure_program(program, package=package)
    settings = CACHE / "containers.conf"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(SETTINGS)
    os.environ["CONTAINERS_CONF"] = str(settings)
    if subprocess.run(["podman", "image", "exists", BASE_IMAGE], check=False).returncode:
        archive = CACHE / "base.tar"
        run("tar", "-C", clean_root(), "-cf", archive, ".")
        run("podman", "import", archive, BASE_IMAGE)
        archive.unlink()
    # The build may run behind a proxy with its own certificate.
    pip_settings = CACHE / "pip.conf"
    pip_settings.write_text(f"[global]\ncert = {CERTIFICATES}\n")
    run(
        *("podman", "build", "--isolation", "chroot", "--format", "docker"),
        *("--build-arg", f"BASE={BASE_IMAGE}", "--tag", IMAGE, "--file", CONTAINERFILE),
        *("--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro"),
        *("--volume", f"{pip_settings}:/etc/pip.conf:ro"),
        REPOSITORY,
    )


def wait_for_log(container: str, text: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        done = subprocess.run(
            ["podman", "logs", container], capture_output=True, text=True, check=False
        )
        if text in done.stdout:
            return
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.1)


@contextmanager
def docker_api(folder: Path) -> Iterator[dict[str, str]]:
    """The environment variables with which Testcontainers finds Podman."""
    socket = folder / "podman.sock"
    command = ["podman", "system", "service", "--time", "0", f"unix://{socket}"]
    service = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not socket.exists():
            assert service.poll() is None, "podman system service has exited"
            assert time.monotonic() < deadline, "podman system service does not listen"
            time.sleep(0.05)
        yield os.environ | {
            "DOCKER_HOST": f"unix://{socket}",
            # The image of its reaper would have to be pulled; the tests stop their containers
            # themselves.
            "TESTCONTAINERS_RYUK_DISABLED": "true",
        }
    finally:
        service.terminate()
        service.wait()


def copy_of(source: Path, folder: Path) -> Path:
    """A copy of a folder of the repository, for tools that write files next to their sources."""
    return Path(shutil.copytree(source, folder / source.name, dirs_exist_ok=True))
