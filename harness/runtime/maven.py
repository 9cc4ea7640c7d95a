"""One artifact by the Maven client (``mvn``), which brings its own settings, mirrors, proxies and passwords.

No repository is named here: without one of the user's the client asks those of its own settings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from harness.errors import HostError, UserError

REPOSITORY_VARIABLE: Final = "SNAPGATE_MAVEN_REPOSITORY"
_TIMEOUT_S: Final = 900

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>snapgate</groupId>
  <artifactId>fetch</artifactId>
  <version>1</version>
  <packaging>pom</packaging>{repositories}
</project>
"""
_REPOSITORIES: Final = """
  <repositories>
    <repository>
      <id>snapgate</id>
      <url>{url}</url>
    </repository>
  </repositories>
  <pluginRepositories>
    <pluginRepository>
      <id>snapgate</id>
      <url>{url}</url>
    </pluginRepository>
  </pluginRepositories>"""


def repository_of(option: str | None) -> str | None:
    """The option, else the environment's, else None: the client's own. ``UserError`` for what is no repository URL."""
    url = option or os.environ.get(REPOSITORY_VARIABLE) or None
    if url is None:
        return None
    where = "--repository" if option else REPOSITORY_VARIABLE
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.username or parts.password:
        raise UserError(
            f"{where} holds a user name or password",
            expected="a URL without; Maven reads them from its own settings",
            next_step="put them into ~/.m2/settings.xml as <server> with the id snapgate",
        )
    if parts.scheme not in ("https", "file") or not (parts.netloc or (parts.scheme == "file" and parts.path)):
        raise UserError(
            f"{where} is not a Maven repository",
            found=repr(url),
            expected="an https:// or file:// URL",
            next_step="correct it",
        )
    return url


def download(group: str, artifact: str, version: str, packaging: str, folder: Path, repository: str | None) -> Path:
    """``<artifact>-<version>.<packaging>`` in ``folder``. ``HostError``: no client, or it did not get it."""
    client = shutil.which("mvn")
    if client is None:
        raise HostError(
            "fetching needs the Maven client",
            found="no mvn on the PATH",
            next_step="sudo apt-get install -y maven, or take the libraries from an SDK with --sdk FOLDER",
        )
    coordinates = f"{group}:{artifact}:{version}:{packaging}"
    with tempfile.TemporaryDirectory(prefix="snapgate-maven-") as scratch:
        pom = Path(scratch) / "pom.xml"
        own = "" if repository is None else _REPOSITORIES.format(url=escape(repository))
        pom.write_text(_POM.format(repositories=own), encoding="utf-8")
        command = [
            client, "-B", "-q", "-U", "-f", str(pom), "dependency:copy",
            f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as exc:
            raise HostError(
                f"the Maven client did not bring {coordinates}",
                found=f"no end after {_TIMEOUT_S} s",
                next_step="look at the network, or name a nearer repository with --repository",
            ) from exc
    path = folder / f"{artifact}-{version}.{packaging}"
    if done.returncode != 0 or not path.is_file():
        raise HostError(
            f"the Maven client did not bring {coordinates}",
            found=_first_error(done.stdout + done.stderr) or f"exit code {done.returncode}",
            expected="the artifact, from " + (repository or "the repositories of Maven's settings"),
            next_step=f"name a repository that has it with --repository or {REPOSITORY_VARIABLE},"
            " or take the libraries from an SDK with --sdk FOLDER",
        )
    return path


def _first_error(output: str) -> str:
    for line in output.splitlines():
        at = line.find("[ERROR]")
        if at >= 0:
            return line[at + len("[ERROR]") :].strip()[:400]
    return ""
