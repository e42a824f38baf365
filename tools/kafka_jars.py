"""Downloads Apache Kafka's jars to `.cache/kafka/<version>`: `python -m tools.kafka_jars`; and
those of Spark's Kafka connector and of its packages for Avro and Protobuf to `.cache/spark`.

Maven downloads them by artifact name (tools/kafka/pom.xml). A complete directory has a marker, so a
second call does nothing, and an interrupted one starts again.
"""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
CACHE: Final = REPOSITORY / ".cache" / "kafka"
KAFKA_VERSION: Final = "4.3.1"
#: The last release line before 4.0, which clusters use that have only recently left ZooKeeper.
KAFKA_39_VERSION: Final = "3.9.2"
#: An older release, whose console tools are still widely installed.
OLD_KAFKA_VERSION: Final = "3.1.0"
#: The newest available version of spark-avro; it works with PySpark 4.3, too.
SPARK_FORMAT_VERSION: Final = "4.1.1"
FETCH_SECONDS_MAX: Final = 900


class JarsMissing(Exception):
    """The jars could not be downloaded; the message is Maven's output."""


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Returns the directory with the jars of a release; downloads them on first use."""
    pom = REPOSITORY / "tools" / "kafka" / "pom.xml"
    return jars(CACHE / version, pom, f"-Dkafka.version={version}")


def framework_jars() -> Path:
    """Returns the directory with the jars of Kafka Streams, Connect and MirrorMaker 2."""
    pom = REPOSITORY / "tools" / "kafka" / "frameworks.xml"
    return jars(CACHE / f"frameworks-{KAFKA_VERSION}", pom, f"-Dkafka.version={KAFKA_VERSION}")


def spark_connector_jars() -> Path:
    """Returns the directory with the jars of Spark's Kafka connector."""
    return jars(CACHE.parent / "spark" / "connector", REPOSITORY / "tools" / "spark" / "pom.xml")


def spark_format_jars(format_: str) -> Path:
    """Returns the directory with the jar of Spark's package for avro or protobuf."""
    pom = REPOSITORY / "tools" / "spark" / "formats.xml"
    version = SPARK_FORMAT_VERSION
    folder = CACHE.parent / "spark" / f"{format_}-{version}"
    return jars(folder, pom, f"-Dformat={format_}", f"-Dspark.version={version}")


def jars(folder: Path, pom: Path, *settings: str) -> Path:
    if is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_complete(folder):
            fetch(folder, pom, settings)
    return folder


def is_complete(folder: Path) -> bool:
    return (folder / ".complete").exists()


def fetch(folder: Path, pom: Path, settings: Sequence[str]) -> None:
    ensure_program("mvn", package="maven")
    ensure_program("java", package="default-jre-headless")
    command = [
        "mvn",
        "--batch-mode",
        "--quiet",
        "--file",
        str(pom),
        *settings,
        "-DincludeScope=runtime",
        f"-DoutputDirectory={folder}",
        "dependency:copy-dependencies",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX)
    if done.returncode != 0:
        raise JarsMissing(f"Maven could not fetch {folder.name}:\n{done.stdout[-2000:]}")
    (folder / ".complete").touch()


def ensure_program(program: str, *, package: str) -> None:
    """Installs the Debian package of a missing program."""
    if shutil.which(program):
        return
    if not shutil.which("apt-get"):
        raise JarsMissing(f"{program} is not installed (Debian: {package})")
    install = ["apt-get", "install", "--yes", "--no-install-recommends", package]
    if subprocess.run(install, capture_output=True, timeout=FETCH_SECONDS_MAX).returncode == 0:
        return
    subprocess.run(["apt-get", "update"], capture_output=True, timeout=FETCH_SECONDS_MAX)
    done = subprocess.run(install, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX)
    if done.returncode != 0:
        raise JarsMissing(f"apt-get could not install {package}:\n{done.stderr[-1000:]}")


def main(versions: list[str]) -> None:
    for version in versions or [KAFKA_VERSION, KAFKA_39_VERSION, OLD_KAFKA_VERSION]:
        print(f"Apache Kafka {version}: {kafka_jars(version)}")


if __name__ == "__main__":
    main(sys.argv[1:])
