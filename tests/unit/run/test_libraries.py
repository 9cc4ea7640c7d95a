"""Which files go to which phone, and what is said when they are missing."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from harness.errors import HostError
from harness.run.libraries import runtime_files
from harness.runtime.fetch import fetch_from_sdk


@pytest.fixture
def build(tmp_path: Path) -> Path:
    for preset in ("host", "android-arm64"):
        (tmp_path / "build" / preset).mkdir(parents=True)
        (tmp_path / "build" / preset / "snapgate-runner").write_text(f"runner for {preset}")
    return tmp_path / "build"


FLAT = ["libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV75Stub.so", "libQnnHtpV75Skel.so"]


def test_a_phone_gets_its_own_runner_and_the_libraries_of_its_arch(build: Path, tmp_path: Path, made) -> None:
    found = runtime_files("arm64-v8a", 75, build_dir=build, qnn_android=made.folder(tmp_path / "qnn", FLAT))
    assert found.runner.local == build / "android-arm64" / "snapgate-runner"
    assert [str(file.place) for file in found.libraries] == [f"libs/{name}" for name in FLAT]


def test_the_layout_of_the_sdk_is_understood(build: Path, tmp_path: Path, made) -> None:
    names = [
        "lib/aarch64-android/libQnnHtp.so",
        "lib/aarch64-android/libQnnSystem.so",
        "lib/aarch64-android/libQnnHtpV79Stub.so",
        "lib/hexagon-v79/unsigned/libQnnHtpV79Skel.so",
    ]
    found = runtime_files("arm64-v8a", 79, build_dir=build, qnn_android=made.folder(tmp_path / "sdk", names))
    assert {file.name for file in found.libraries} == {
        "libQnnHtp.so",
        "libQnnSystem.so",
        "libQnnHtpV79Stub.so",
        "libQnnHtpV79Skel.so",
    }


def test_libraries_of_another_arch_do_not_serve_and_every_missing_file_is_named(
    build: Path, tmp_path: Path, made
) -> None:
    folder = made.folder(tmp_path / "qnn", FLAT)
    with pytest.raises(HostError) as caught:
        runtime_files("arm64-v8a", 79, build_dir=build, qnn_android=folder)
    assert "libQnnHtpV79Stub.so" in str(caught.value)
    assert "libQnnHtpV79Skel.so" in str(caught.value)
    assert "libQnnSystem.so" not in str(caught.value)


@pytest.mark.usefixtures("no_libraries")
def test_runner_and_libraries_are_missed_in_one_message(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        runtime_files("arm64-v8a", 75, build_dir=tmp_path)
    message = str(caught.value)
    assert "android-arm64/snapgate-runner" in message
    assert "libQnnHtpV75Skel.so" in message
    assert "make runner-android" in message
    assert "`snapgate runtime fetch`, or set SNAPGATE_QNN_ANDROID" in message


def test_the_folder_may_be_named_by_the_environment(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made
) -> None:
    monkeypatch.setenv("SNAPGATE_QNN_ANDROID", str(made.folder(tmp_path / "qnn", FLAT)))
    assert len(runtime_files("arm64-v8a", 75, build_dir=build).libraries) == 4


def test_a_32_bit_phone_has_no_runner(build: Path) -> None:
    with pytest.raises(HostError, match="no runner for ABI armeabi-v7a"):
        runtime_files("armeabi-v7a", 75, build_dir=build)


def test_the_dsp_path_is_separated_by_semicolons_and_never_the_vendors_cpu_folder(
    build: Path, tmp_path: Path, made
) -> None:
    found = runtime_files("arm64-v8a", 75, build_dir=build, qnn_android=made.folder(tmp_path / "qnn", FLAT))
    environment = found.environment(PurePosixPath("/d/r"))
    assert environment["LD_LIBRARY_PATH"] == "/d/r/libs"
    assert environment["ADSP_LIBRARY_PATH"].split(";")[0] == "/d/r/libs"
    assert ":" not in environment["ADSP_LIBRARY_PATH"]
    assert "/vendor/lib64" not in environment["ADSP_LIBRARY_PATH"]


def test_what_was_fetched_is_used_when_the_environment_names_nothing(
    build: Path, tmp_path: Path, no_libraries: Path, made
) -> None:
    fetch_from_sdk((75,), made.folder(tmp_path / "sdk", FLAT), progress=lambda _: None)
    found = runtime_files("arm64-v8a", 75, build_dir=build)
    assert found.build_id == made.build
    assert {file.local.parent for file in found.libraries} == {no_libraries / "2.50.0"}


def test_the_set_of_the_compilers_own_version_goes_before_a_newer_one(
    build: Path, tmp_path: Path, no_libraries: Path, made
) -> None:
    for name, its_build in (("old", made.older), ("new", made.build)):
        fetch_from_sdk((75,), made.folder(tmp_path / name, FLAT, its_build), progress=lambda _: None)
    assert runtime_files("arm64-v8a", 75, build_dir=build).build_id == made.build
    assert runtime_files("arm64-v8a", 75, build_dir=build, compiled_by=made.older).build_id == made.older


def test_libraries_of_two_builds_are_not_pushed(build: Path, tmp_path: Path, made) -> None:
    folder = made.folder(tmp_path / "qnn", FLAT)
    (folder / "libQnnHtpV75Skel.so").write_bytes(made.named("libQnnHtpV75Skel.so", made.older))
    with pytest.raises(HostError, match="not of one build") as caught:
        runtime_files("arm64-v8a", 75, build_dir=build, qnn_android=folder)
    assert caught.value.found == f"libQnnHtpV75Skel.so: {made.older}"


def test_libraries_of_a_pc_are_not_pushed_to_a_phone(build: Path, tmp_path: Path, made) -> None:
    folder = made.folder(tmp_path / "qnn", FLAT)
    (folder / "libQnnHtp.so").write_bytes(made.library(made.build, machine=62))
    with pytest.raises(HostError, match="for another machine; found: x86-64; expected: arm64"):
        runtime_files("arm64-v8a", 75, build_dir=build, qnn_android=folder)


@pytest.mark.lane("qnn")
def test_an_x86_phone_gets_the_wheels_libraries_and_what_they_need(build: Path) -> None:
    found = runtime_files("x86_64", 75, build_dir=build)
    names = [file.name for file in found.libraries]
    assert found.runner.local == build / "host" / "snapgate-runner"
    assert names[:2] == ["libQnnHtp.so", "libQnnSystem.so"]
    assert any(name.startswith("libc++-") for name in names)
    assert "libHtpPrepare.so" not in names
    assert found.build_id is not None
    assert found.build_id.startswith("v2.")
