"""Builds the Debian package: `python3 -m tools.build_deb [FOLDER]`, by default in `dist`.

The package contains a virtual environment in /usr/lib/lograft with the wheel and its dependencies.
Their compiled modules are for one version of Python, so run this with the version of the Debian
release that the package is for. It needs dpkg-deb (Debian: dpkg), and pip in the running Python.
"""

import gzip
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from lograft import __version__

REPOSITORY: Final = Path(__file__).resolve().parent.parent
PARTS: Final = REPOSITORY / "packaging"
MAINTAINER: Final = "The Lograft authors <lograft@localhost>"
#: Where the package is installed.
HOME: Final = Path("usr/lib/lograft")
SCRIPTS: Final = ("postinst", "prerm", "postrm")
#: The files, besides `src`, that the wheel is built from.
SOURCES: Final = ("pyproject.toml", "setup.py", "README.md", "LICENSE")


def build_wheel(folder: Path) -> Path:
    """Builds from a copy of the sources, since a build leaves files in the tree."""
    sources = folder / "sources"
    sources.mkdir(parents=True)
    for name in SOURCES:
        shutil.copy(REPOSITORY / name, sources)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "src", sources / "src", ignore=ignored)
    run_pip("wheel", "--no-deps", "--wheel-dir", folder, sources)
    [wheel] = folder.glob("*.whl")
    return wheel


def build_deb(output: Path) -> Path:
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / "root"
        install_environment(root / HOME, build_wheel(Path(temporary)))
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/lograft").symlink_to("../lib/lograft/bin/lograft")
        install(PARTS / "deb/server.properties", root / "etc/lograft/server.properties")
        install(PARTS / "systemd/lograft.service", root / "lib/systemd/system/lograft.service")
        install_documents(root / "usr/share")
        for path in [root, *root.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
        install_control(root)
        output.mkdir(parents=True, exist_ok=True)
        command = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(output)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return output / f"lograft_{__version__}_{architecture()}.deb"


def install_environment(home: Path, wheel: Path) -> None:
    """As `python3 -m venv` with Debian's Python would do it, without pip."""
    version = python_version(sys.version_info.minor)
    packages = home / "lib" / f"python{version}" / "site-packages"
    constraints = ("-c", REPOSITORY / "constraints.txt")
    run_pip("install", "--no-compile", "--target", packages, *constraints, wheel)
    shutil.rmtree(packages / "bin", ignore_errors=True)
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(f"../../../bin/python{version}")
    (home / "bin" / "lograft").write_text(
        f"#!/{HOME}/bin/python3 -P\nimport sys\n\nfrom lograft.cli.main import main\n\n"
        "sys.exit(main())\n"
    )
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")


def install_documents(folder: Path) -> None:
    """`folder` is /usr/share."""
    install(PARTS / "deb/copyright", folder / "doc/lograft/copyright")
    install(PARTS / "deb/lintian-overrides", folder / "lintian/overrides/lograft")
    entry = (
        f"lograft ({__version__}) stable; urgency=medium\n\n  * See the project's CHANGELOG.md.\n\n"
        f" -- {MAINTAINER}  Thu, 01 Jan 2026 00:00:00 +0000\n"
    )
    write_compressed(folder / "doc/lograft/changelog.gz", entry)
    write_compressed(folder / "man/man1/lograft.1.gz", (PARTS / "deb/lograft.1").read_text())


def install_control(root: Path) -> None:
    sizes = (path.lstat().st_size for path in root.rglob("*"))
    control = (PARTS / "deb/control").read_text()
    folder = root / "DEBIAN"
    folder.mkdir()
    (folder / "control").write_text(
        control.format(
            version=__version__,
            architecture=architecture(),
            maintainer=MAINTAINER,
            installed_kib=sum(sizes) // 1024,
            python=python_version(sys.version_info.minor),
            next_python=python_version(sys.version_info.minor + 1),
        )
    )
    (folder / "conffiles").write_text("/etc/lograft/server.properties\n")
    for script in SCRIPTS:
        install(PARTS / "deb" / script, folder / script)
        (folder / script).chmod(0o755)
    folder.chmod(0o755)


def install(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def write_compressed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def python_version(minor: int) -> str:
    return f"3.{minor}"


def architecture() -> str:
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def run_pip(command: str, *arguments: str | Path) -> None:
    pip = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *map(str, arguments)], check=True)


if __name__ == "__main__":
    print(build_deb(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "dist"))
