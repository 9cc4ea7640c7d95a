"""`snapgate runtime`: what is kept, and what is refused, with the Maven client replaced; and once with the real one."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import harness.runtime.fetch
from harness.cli.main import main
from harness.errors import HostError, UserError
from harness.runtime.fetch import fetch_from_maven, fetch_from_sdk, installed, refuse_changed
from harness.runtime.maven import download, repository_of
from harness.runtime.pinned import pinned
from harness.runtime.required import ARCHS, required_files
from harness.soc import SOCS

FLAT = ["libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV75Stub.so", "libQnnHtpV75Skel.so"]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def quiet(_: str) -> None:
    pass


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, no_libraries: Path) -> Callable[[Path], None]:
    """Let ``download`` bring this file, as the client would."""

    def serve(archive: Path) -> None:
        def fake(_group, artifact, version, packaging, folder, _repository):
            return Path(shutil.copyfile(archive, folder / f"{artifact}-{version}.{packaging}"))

        monkeypatch.setattr(harness.runtime.fetch, "download", fake)

    return serve


def test_every_arch_of_the_catalogue_has_its_four_files() -> None:
    assert {soc.htp_arch for soc in SOCS} == set(ARCHS)
    for arch in ARCHS:
        assert [(file.name, file.dsp) for file in required_files(arch)] == [
            ("libQnnHtp.so", False),
            ("libQnnSystem.so", False),
            (f"libQnnHtpV{arch}Stub.so", False),
            (f"libQnnHtpV{arch}Skel.so", True),
        ]


def test_the_default_version_is_pinned_by_a_whole_sha256() -> None:
    entry = pinned().runtime(pinned().default)
    assert entry is not None
    assert len(bytes.fromhex(entry.sha256)) == 32


def test_what_is_fetched_is_whole_checked_and_listed(
    tmp_path: Path, made, serve, no_libraries: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = made.archive(tmp_path / "a.aar", (75, 79))
    serve(archive)
    arguments = ["runtime", "fetch", "--version", "2.50.9", "--sha256", sha256(archive).upper(), "--soc", "gen3"]
    assert main(arguments) == 0
    (entry,) = installed()
    assert (entry.version, entry.build_id, entry.folder) == ("2.50.9", made.build, no_libraries / "2.50.9")
    assert sorted(path.name for path in entry.folder.iterdir()) == sorted([*FLAT, "libraries.json"])
    assert {name: sha256(entry.folder / name) for name in FLAT} == entry.sha256
    assert [path.name for path in no_libraries.iterdir()] == ["2.50.9"]  # nothing half-done beside it
    capsys.readouterr()
    assert main(["runtime", "check", "gen3"]) == 0
    assert f"build: {made.build}" in capsys.readouterr().out
    assert main(["runtime", "check", "elite"]) == 21
    assert "no libraries for phones; next step: snapgate runtime fetch" in capsys.readouterr().err


def test_a_second_fetch_adds_an_arch_and_loses_none(tmp_path: Path, made, serve) -> None:
    archive = made.archive(tmp_path / "a.aar", (73, 75, 79))
    serve(archive)
    for arch in (75, 79):
        fetch_from_maven((arch,), version="2.50.9", sha256=sha256(archive), repository=None, progress=quiet)
    (entry,) = installed()
    assert {name for name in entry.sha256 if "Skel" in name} == {"libQnnHtpV75Skel.so", "libQnnHtpV79Skel.so"}


def test_another_sha256_keeps_nothing(tmp_path: Path, made, serve, no_libraries: Path) -> None:
    serve(made.archive(tmp_path / "a.aar", (75,)))
    with pytest.raises(HostError, match="is not the one that is pinned"):
        fetch_from_maven((75,), version=None, sha256=None, repository=None, progress=quiet)
    assert not list(no_libraries.iterdir())


def test_an_archive_of_two_builds_keeps_nothing(tmp_path: Path, made, serve, no_libraries: Path) -> None:
    archive = made.archive(tmp_path / "a.aar", (75,), builds={"libQnnHtpV75Skel.so": made.older})
    serve(archive)
    with pytest.raises(HostError, match="not of one build"):
        fetch_from_maven((75,), version="2.50.9", sha256=sha256(archive), repository=None, progress=quiet)
    assert not list(no_libraries.iterdir())


def test_an_archive_of_another_release_than_its_name_keeps_nothing(tmp_path: Path, made, serve) -> None:
    archive = made.archive(tmp_path / "a.aar", (75,))
    serve(archive)
    with pytest.raises(HostError, match=r"fetched as 2\.51\.0 are of another release"):
        fetch_from_maven((75,), version="2.51.0", sha256=sha256(archive), repository=None, progress=quiet)
    assert installed() == ()


@pytest.mark.parametrize(
    ("version", "digest", "said"),
    [
        ("2.51.0", None, "is not pinned"),
        ("2.50.0", "0" * 64, "is not that of qnn-runtime 2.50.0"),
        ("latest", None, "--version is not a version"),
        ("2.51.0", "abc", "--sha256 is not a sha256"),
    ],
)
def test_nothing_is_fetched_that_cannot_be_checked(version: str, digest: str | None, said: str, serve) -> None:
    with pytest.raises(UserError, match=said):
        fetch_from_maven((75,), version=version, sha256=digest, repository=None, progress=quiet)


def test_an_sdk_gives_the_same_set(tmp_path: Path, made, no_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [f"{file.sdk_folder}/{file.name}" for file in required_files(79)]
    monkeypatch.setenv("QAIRT_SDK_ROOT", str(made.folder(tmp_path / "sdk", places)))
    assert main(["runtime", "fetch", "--sdk", "--soc", "elite"]) == 0
    (entry,) = installed()
    assert (entry.version, entry.build_id) == ("2.50.0", made.build)
    assert "libQnnHtpV79Skel.so" in entry.sha256


def test_an_sdk_without_an_arch_is_named_with_what_it_lacks(tmp_path: Path, made, no_libraries: Path) -> None:
    with pytest.raises(HostError, match=r"hexagon-v79/unsigned/libQnnHtpV79Skel\.so"):
        fetch_from_sdk((75, 79), made.folder(tmp_path / "sdk", FLAT), progress=quiet)


def test_a_library_changed_after_the_fetch_is_refused(tmp_path: Path, made, no_libraries: Path) -> None:
    entry = fetch_from_sdk((75,), made.folder(tmp_path / "sdk", FLAT), progress=quiet)
    refuse_changed(entry.folder, {name: sha256(entry.folder / name) for name in FLAT})
    path = entry.folder / "libQnnHtp.so"
    path.write_bytes(path.read_bytes() + b"!")
    with pytest.raises(HostError, match=r"libQnnHtp\.so has changed since it was fetched"):
        refuse_changed(entry.folder, {name: sha256(entry.folder / name) for name in FLAT})
    assert main(["runtime", "check", "gen3"]) == 21


def test_a_folder_with_a_damaged_list_is_passed_over(no_libraries: Path) -> None:
    for name, text in (("1", "{"), ("2", "[]"), ("3", json.dumps({"schema": "other"}))):
        (no_libraries / name).mkdir(parents=True)
        (no_libraries / name / "libraries.json").write_text(text)
    assert installed() == ()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://me:secret@host/repo", "holds a user name or password"),
        ("ftp://host/repo", "is not a Maven repository"),
        ("host/repo", "is not a Maven repository"),
        ("https://", "is not a Maven repository"),
        ("https://[bad", "is not a Maven repository"),
    ],
)
def test_repositories_are_urls_without_passwords(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        repository_of(url)
    assert "secret" not in str(caught.value)


@pytest.mark.usefixtures("no_libraries")
def test_the_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repository_of(None) is None
    monkeypatch.setenv("SNAPGATE_MAVEN_REPOSITORY", "https://lab.example/maven")
    assert repository_of(None) == "https://lab.example/maven"
    assert repository_of("file:///srv/maven") == "file:///srv/maven"


def test_without_the_client_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match=r"no mvn on the PATH; next step: sudo apt-get install -y maven"):
        download("g", "a", "1", "aar", tmp_path, None)


@pytest.fixture
def version() -> Iterator[str]:
    """One that no run before had: the client keeps what it brought in a repository of the user's own."""
    number = f"2.50.{time.time_ns()}"
    yield number
    shutil.rmtree(Path.home() / ".m2/repository/com/qualcomm/qti/qnn-runtime" / number, ignore_errors=True)


@pytest.fixture
def repository(tmp_path: Path, made, version: str) -> Path:
    """A Maven repository on this disk, laid out as any: the published one cannot be counted on in a test."""
    folder = tmp_path / "a repository & more" / "com/qualcomm/qti/qnn-runtime" / version
    archive = made.archive(folder / f"qnn-runtime-{version}.aar", (68, 69, 73, 75, 79, 81))
    archive.with_suffix(".pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>com.qualcomm.qti</groupId><artifactId>qnn-runtime</artifactId><version>{version}</version>"
        "<packaging>aar</packaging></project>"
    )
    for path in (archive, archive.with_suffix(".pom")):
        Path(f"{path}.sha1").write_text(hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest())
    return folder.parents[4]


@pytest.mark.slow
@pytest.mark.lane("maven")
def test_the_real_client_brings_it_from_a_repository_on_this_disk(
    repository: Path, version: str, no_libraries: Path, tmp_path: Path, made
) -> None:
    """Says nothing about the published repository: its layout is the same, its libraries are made here."""
    (archive,) = repository.rglob("*.aar")
    url = repository.as_uri()
    assert main(["runtime", "fetch", "--repository", url, "--version", version, "--sha256", sha256(archive)]) == 0
    (entry,) = installed()
    assert (entry.version, entry.build_id) == (version, made.build)
    assert len(entry.sha256) == 14  # two for all, two for each of six archs
    missing = tmp_path / "empty"
    missing.mkdir()
    with pytest.raises(HostError, match=r"did not bring com\.qualcomm\.qti:qnn-runtime:2\.50\.8:aar"):
        download("com.qualcomm.qti", "qnn-runtime", "2.50.8", "aar", missing, url)
