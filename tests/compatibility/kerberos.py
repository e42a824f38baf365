"""A realm of Kerberos: a key distribution center (Debian's krb5-kdc) on loopback, and keytabs.

The package gssapi needs a compiler, so it is not part of the environment of the tests: it is built
into a directory of its own, which the processes that need it have on their path.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.compatibility.servers import HOST, free_port
from tools.kafka_jars import REPOSITORY, ensure_program

REALM: Final = "LOGRAFT.TEST"
#: Of the nodes: clients ask for the service at the host name that they connect to.
SERVER: Final = "kafka/localhost"
GSSAPI: Final = REPOSITORY / ".cache" / "gssapi"
SECONDS_MAX: Final = 300
#: Where Debian installs the server's programs.
PROGRAMS: Final = os.environ["PATH"] + ":/usr/sbin"


@dataclass(frozen=True, slots=True)
class Realm:
    folder: Path

    @property
    def config_path(self) -> Path:
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that uses Kerberos. Tickets are not kept outside of the folder."""
        return {
            "KRB5_CONFIG": str(self.config_path),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder / 'tickets'}",
            "KRB5RCACHENAME": f"dfl:{self.folder / 'replays'}",
            "PYTHONPATH": str(GSSAPI),
            "PATH": PROGRAMS,
        }

    def keytab(self, principal: str) -> Path:
        """The keytab of a principal, which is created on first use."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        if not path.exists():
            self.administer(f"addprinc -randkey {principal}")
            self.administer(f"ktadd -k {path} {principal}")
        return path

    def remove(self, principal: str) -> None:
        self.administer(f"delprinc -force {principal}")

    def administer(self, query: str) -> None:
        self.run("kadmin.local", "-q", query)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def jaas(self, principal: str, *, is_server: bool = False) -> str:
        options = "useKeyTab=true storeKey=true" + ("" if is_server else " serviceName=kafka")
        return (
            f"com.sun.security.auth.module.Krb5LoginModule required {options}"
            f' keyTab="{self.keytab(principal)}" principal="{principal}@{REALM}";'
        )


@contextmanager
def started_realm(folder: Path) -> Iterator[Realm]:
    ensure_program("/usr/sbin/krb5kdc", package="krb5-kdc")
    ensure_program("/usr/sbin/kadmin.local", package="krb5-admin-server")
    realm = Realm(folder)
    port = free_port()
    folder.mkdir(parents=True)
    realm.config_path.write_text(
        "[libdefaults]\n"
        f" default_realm = {REALM}\n"
        " dns_lookup_kdc = false\n dns_lookup_realm = false\n"
        " dns_canonicalize_hostname = false\n rdns = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = {HOST}:{port}\n }}\n"
    )
    (folder / "kdc.conf").write_text(
        f'[kdcdefaults]\n kdc_listen = ""\n kdc_tcp_listen = {HOST}:{port}\n'
        f"[realms]\n {REALM} = {{\n  database_name = {folder / 'principals'}\n"
        f"  key_stash_file = {folder / 'stash'}\n  acl_file = {folder / 'acl'}\n }}\n"
    )
    realm.run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
    with (folder / "kdc.log").open("wb") as log:
        process = subprocess.Popen(
            ["krb5kdc", "-n"],
            env=os.environ | realm.environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_reachable(port)
        yield realm
    finally:
        process.terminate()
        process.wait(timeout=SECONDS_MAX)


def wait_until_reachable(port: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "the key distribution center does not start"
            time.sleep(0.05)


def ensure_gssapi() -> None:
    """Builds the package gssapi once."""
    marker = GSSAPI / ".complete"
    if marker.exists():
        return
    ensure_program("krb5-config", package="libkrb5-dev")
    ensure_program("gcc", package="gcc")
    shutil.rmtree(GSSAPI, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(GSSAPI), "gssapi"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    marker.touch()
