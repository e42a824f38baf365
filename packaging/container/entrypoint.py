#!/opt/lograft/bin/python
"""Runs the node of a container (`run`), and reports whether it serves clients (`health`).

The node's settings are, with later ones taking precedence:

1. those of a single node that clients reach at localhost:9092,
2. the file /etc/lograft/server.properties, if one is mounted,
3. environment variables, named as for Apache Kafka's image: KAFKA_LOG_RETENTION_HOURS sets
   log.retention.hours; `__` stands for an underscore and `___` for a dash.

The first start formats the data folder with the cluster id of CLUSTER_ID, or with a random one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lograft.model.properties import format_properties, parse_properties

VOLUME: Final = Path("/var/lib/lograft")
MOUNTED_FILE: Final = Path("/etc/lograft/server.properties")
SETTINGS_FILE: Final = VOLUME / "server.properties"
DEFAULTS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://localhost:9093",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": f"{VOLUME}/data",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
#: Needed by a node that is not part of a quorum named elsewhere.
OWN_QUORUM: Final = {"controller.quorum.bootstrap.servers": "localhost:9093"}
PREFIX: Final = "KAFKA_"
SEPARATORS: Final = {"_": ".", "__": "_", "___": "-"}


def setting_name(variable: str) -> str:
    """The setting that an environment variable sets: KAFKA_NODE_ID sets node.id."""
    name = variable.removeprefix(PREFIX).lower()
    return re.sub("_{1,3}", lambda match: SEPARATORS[match[0]], name)


def node_settings(environment: Mapping[str, str], mounted: Mapping[str, str]) -> dict[str, str]:
    variables = {
        setting_name(name): value for name, value in environment.items() if name.startswith(PREFIX)
    }
    settings = DEFAULTS | dict(mounted) | variables
    if not any(name.startswith("controller.quorum.") for name in settings):
        settings |= OWN_QUORUM
    return settings


def stored_cluster_id(settings: Mapping[str, str]) -> str | None:
    """None before the data folders are formatted."""
    for folder in settings["log.dirs"].split(","):
        file = Path(folder.strip()) / "meta.properties"
        if file.exists():
            return parse_properties(file.read_text()).get("cluster.id")
    return None


def format_command(settings: Mapping[str, str], cluster_id: str) -> list[str]:
    """`lograft storage format`, which skips folders that are already formatted."""
    command = ["storage", "format", "--ignore-formatted", "-t", cluster_id]
    command += ["-c", str(SETTINGS_FILE)]
    return command if "controller.quorum.voters" in settings else [*command, "--standalone"]


def health_command(settings: Mapping[str, str]) -> list[str]:
    """A request to this node: to its first listener for clients or, if it is a controller only, to
    the listener of the controller."""
    controller_names = settings["controller.listener.names"].split(",")
    ports = {True: "", False: ""}
    for listener in reversed(settings["listeners"].split(",")):
        name, _, port = listener.strip().partition("://")[0], *listener.rpartition(":")[1:]
        ports[name in controller_names] = port
    if "broker" in settings["process.roles"]:
        return ["cluster", "describe", "--bootstrap-server", f"localhost:{ports[False]}"]
    address = f"localhost:{ports[True]}"
    return ["kafka-metadata-quorum", "--bootstrap-controller", address, "describe", "--status"]


def run(*arguments: str) -> str:
    done = subprocess.run(["lograft", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def main() -> None:
    match sys.argv[1:]:
        case ["run"]:
            mounted = parse_properties(MOUNTED_FILE.read_text()) if MOUNTED_FILE.exists() else {}
            settings = node_settings(os.environ, mounted)
            SETTINGS_FILE.write_text(format_properties(settings))
            cluster_id = (
                os.environ.get("CLUSTER_ID")
                or stored_cluster_id(settings)
                or run("storage", "random-uuid").strip()
            )
            print(run(*format_command(settings, cluster_id)), end="", flush=True)
            os.execvp("lograft", ["lograft", "server", str(SETTINGS_FILE)])
        case ["health"]:
            run(*health_command(parse_properties(SETTINGS_FILE.read_text())))
        case command:
            # Any other command of Lograft: docker run lograft topics list -b …
            os.execvp("lograft", ["lograft", *command])


if __name__ == "__main__":
    main()
