"""What libraries say of their build, whether they belong together, and what they will load."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import ArtifactError, HostError
from harness.runtime.check import common_build, refuse_newer_artifact, release_of, silent_libraries, will_load
from harness.runtime.elf import identify
from harness.runtime.pinned import pinned

NAMES = ["libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV75Stub.so", "libQnnHtpV75Skel.so"]


def files(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir()}


def test_an_id_a_release_and_a_stamp_are_read(tmp_path: Path, made) -> None:
    path = tmp_path / "lib.so"
    for kind, expected in (
        ("id", ({"v2.50.0.260828221209"}, {"2.50.0"}, set())),
        ("release", (set(), {"2.50.0"}, set())),
        ("stamp", (set(), set(), {"260828221209"})),
    ):
        path.write_bytes(made.library(made.build, kind=kind))
        found = identify(path)
        assert (found.build_ids, found.releases, found.stamps) == expected


def test_numbers_that_look_alike_are_not_taken_for_a_build(tmp_path: Path, made) -> None:
    path = tmp_path / "lib.so"
    header = made.library(made.build)[:64]
    path.write_bytes(header + b"\0hexnn_v2.50.0.2608282212091\0xv2.50.0.260828221209\0\x00444400000000\0")
    found = identify(path)
    assert found.says_nothing  # thirteen digits; a letter before; month 44


@pytest.mark.lane("qnn")
def test_the_wheels_own_libraries_are_of_one_build() -> None:
    from harness.compiler.libraries import library_folder

    folder = library_folder()
    build = common_build({name: folder / name for name in ("libQnnHtp.so", "libQnnSystem.so", "libQnnIr.so")})
    assert build in {compiler.build_id for compiler in pinned().compilers}


def test_one_build_is_found_although_each_library_tells_it_in_another_way(tmp_path: Path, made) -> None:
    folder = made.folder(tmp_path / "qnn", NAMES)
    (folder / "libQnnHtpV75Stub.so").write_bytes(made.library(made.build, kind="release"))
    assert common_build(files(folder)) == "v2.50.0.260828221209"


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("libQnnHtpV75Skel.so", "id", "v2.49.40.260810104044"),
        ("libQnnHtpV75Stub.so", "release", "release 2.49.40"),
        ("libQnnSystem.so", "stamp", "build time 260810104044"),
    ],
)
def test_one_library_of_another_build_is_named(tmp_path: Path, made, name: str, kind: str, said: str) -> None:
    folder = made.folder(tmp_path / "qnn", NAMES)
    (folder / name).write_bytes(made.library(made.older, kind=kind))
    with pytest.raises(HostError, match="not of one build") as caught:
        common_build(files(folder))
    assert caught.value.found == f"{name}: {said}"
    assert caught.value.expected == "v2.50.0.260828221209, as libQnnHtp.so says"


def test_libraries_that_say_nothing_are_not_said_to_be_of_a_build(tmp_path: Path, made) -> None:
    path = tmp_path / "libQnnHtp.so"
    path.write_bytes(made.library(made.build)[:64])
    assert common_build({"libQnnHtp.so": path}) is None
    assert silent_libraries({"libQnnHtp.so": path}) == ("libQnnHtp.so",)


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "libQnnHtp.so"
    path.write_bytes(b"<html>not found</html>" * 10)
    with pytest.raises(HostError, match="is not a library"):
        identify(path)


@pytest.mark.parametrize(
    ("compiler", "runtime", "expected"),
    [
        ("v2.50.40.260831140417", "v2.50.0.260828221209", True),  # the patch number does not count
        ("v2.49.40.260810104044", "v2.50.0.260828221209", True),
        ("v2.51.0.260929181845", "v2.50.40.260831140417", False),
        ("v2.51.0.260929181845", "v3.0.0.270101000000", True),
        ("unknown", "v2.50.0.260828221209", None),
    ],
)
def test_the_minor_version_decides_what_loads(compiler: str, runtime: str, expected: bool | None) -> None:
    assert will_load(compiler=compiler, runtime=runtime) is expected


def test_an_artifact_of_a_newer_compiler_is_refused_before_it_is_pushed() -> None:
    with pytest.raises(ArtifactError) as caught:
        refuse_newer_artifact(artifact="tiny", compiler="v2.51.0.260929181845", runtime="v2.50.0.260828221209")
    assert caught.value.found == "compiler v2.51.0.260929181845, libraries v2.50.0.260828221209"
    refuse_newer_artifact(artifact="tiny", compiler="v2.50.40.260831140417", runtime="v2.50.0.260828221209")
    refuse_newer_artifact(artifact="tiny", compiler=None, runtime="v2.50.0.260828221209")


def test_releases_are_read_from_ids_and_versions() -> None:
    assert release_of("v2.50.40.260831140417") == (2, 50, 40)
    assert release_of("2.50.0") == (2, 50, 0)
    assert release_of("unknown") is None


def test_the_pinned_runtime_loads_what_the_pinned_compiler_writes() -> None:
    """The compiler of pyproject.toml must not be newer than the phone libraries that are fetched by default."""
    import tomllib

    document = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())
    (wheel,) = [
        entry.split("==")[1].split(";")[0]
        for entry in document["project"]["optional-dependencies"]["prepare"]
        if entry.startswith("onnxruntime-qnn==")
    ]
    (compiler,) = [entry for entry in pinned().compilers if entry.wheel == wheel]
    assert will_load(compiler=compiler.build_id, runtime=pinned().default) is True
