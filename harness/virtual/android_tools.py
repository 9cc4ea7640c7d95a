"""Android's own shell (mksh) and command line tools (toybox), where this host has them.

Without them the phone gets the host's ``sh`` and GNU tools, and says so in ``ro.snapgate.shell`` and
``ro.snapgate.tools``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HostError

_PACKAGES = ("mksh", "toybox")
_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class AndroidTools:
    """Paths of the programs; None where the host has none."""

    mksh: Path | None
    toybox: Path | None


def tools_cache(environment: Mapping[str, str] = os.environ) -> Path:
    cache = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", "/")) / ".cache")
    return Path(cache) / "snapgate" / "android-tools"


def find_android_tools(environment: Mapping[str, str] = os.environ) -> AndroidTools:
    """Installed programs first, then those that ``fetch_android_tools`` unpacked."""
    search = os.pathsep.join((environment.get("PATH", os.defpath), str(tools_cache(environment))))
    found = {name: shutil.which(name, path=search) for name in _PACKAGES}
    return AndroidTools(
        mksh=None if found["mksh"] is None else Path(found["mksh"]).resolve(),
        toybox=None if found["toybox"] is None else Path(found["toybox"]).resolve(),
    )


def fetch_android_tools(progress: Callable[[str], None] = lambda _: None) -> AndroidTools:
    """Take mksh and toybox out of their Debian packages, without installing them and without being root.

    Raises HostError where the host is no Debian or Ubuntu, or its package lists are empty or out of reach.
    """
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            raise HostError(
                "Android's shell and tools cannot be fetched",
                found=f"no {needed}",
                expected="a Debian or Ubuntu host",
                next_step="install mksh and toybox with this system's own packages, or go on with the host's tools",
            )
    target = tools_cache()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as folder:
        progress(f"fetching {' and '.join(_PACKAGES)}")
        _run(["apt-get", "download", *_PACKAGES], Path(folder))
        for package in sorted(Path(folder).glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), "unpacked"], Path(folder))
        for name in _PACKAGES:
            unpacked = [Path(folder, "unpacked", place, name) for place in ("bin", "usr/bin")]
            program = next((path for path in unpacked if path.is_file()), None)
            if program is None:
                raise HostError(f"package {name} has no program of its name", next_step=f"install {name} by hand")
            program.resolve().replace(target / name)
    return find_android_tools()


def _run(arguments: list[str], folder: Path) -> None:
    done = subprocess.run(
        arguments, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        raise HostError(
            f"{arguments[0]} failed while fetching Android's shell and tools",
            found=(done.stderr or done.stdout).strip()[-400:] or f"exit code {done.returncode}",
            expected="mksh and toybox in the package lists",
            next_step="run 'apt-get update' as root, or install mksh and toybox",
        )
