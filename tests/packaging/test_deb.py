"""The Debian package and the systemd unit: linted, installed in a clean Debian,
started and removed."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.packaging.clean_root import PYTHON, SUITE, clean_root, root_only, run
from tools.build_deb import build_deb
from tools.kafka_jars import REPOSITORY, ensure_program

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200), root_only()]

UNIT: Final = REPOSITORY / "packaging" / "systemd" / "lograft.service"
#: The score of `systemd-analyze security`, in tenths: 0 is the most restricted service, 100 the
#: least.
EXPOSURE_MAX: Final = 15
#: Runs in the clean Debian, in a separate network namespace.
SCENARIO: Final = """
set -e
dpkg --install /tmp/lograft.deb
test "$(stat -c %U:%a /var/lib/lograft)" = lograft:750
command="$(sed -n s/^ExecStart=//p /lib/systemd/system/lograft.service)"
start() {
    runuser -u lograft -- $command > /tmp/output 2>&1 &
    until grep -q 'Lograft is listening on' /tmp/output; do
        kill -0 $! || { cat /tmp/output; exit 1; }
        sleep 0.1
    done
}
start
runuser -u nobody -- lograft produce orders tea
kill "$(cat /proc/$!/task/$!/children)"
wait $!
echo "exit code $?"
dpkg --install /tmp/lograft.deb  # As for an upgrade.
start
runuser -u nobody -- lograft consume orders
runuser -u nobody -- lograft doctor
kill "$(cat /proc/$!/task/$!/children)"
wait $!
dpkg --purge lograft
test -d /var/lib/lograft/data
for removed in /etc/lograft /usr/lib/lograft /usr/bin/lograft; do
    test ! -e $removed || { find $removed; exit 1; }
done
echo removed
"""


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if sys.version_info[:2] != PYTHON:
        pytest.skip(f"Debian {SUITE} has Python {PYTHON[0]}.{PYTHON[1]}")
    ensure_program("dpkg-deb", package="dpkg")
    return build_deb(tmp_path_factory.mktemp("deb"))


def test_lintian_accepts_the_package(deb: Path) -> None:
    ensure_program("lintian", package="lintian")
    run("lintian", "--allow-root", "--fail-on", "error,warning", deb)


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    ensure_program("systemd-analyze", package="systemd")
    # `verify` requires the program to exist on this machine.
    unit = tmp_path / "lograft.service"
    unit.write_text(UNIT.read_text().replace("/usr/bin/lograft", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    run("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", unit)


def test_the_package_is_installed_started_upgraded_and_removed(deb: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    run("cp", "--archive", clean_root(), root)
    shutil.copy(deb, root / "tmp" / "lograft.deb")
    (root / "tmp" / "scenario.sh").write_text(SCENARIO)
    enter = f"ip link set lo up && mount -t proc proc {root}/proc && "
    output = run(
        *("unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c"),
        f"{enter} exec env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin"
        f" chroot {root} sh /tmp/scenario.sh",
    )
    assert "exit code 0\n" in output
    assert "tea\n" in output
    assert output.endswith("removed\n")
