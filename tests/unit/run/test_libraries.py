"""Which files go to which phone, and what is said when they are missing."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from harness.errors import HostError
from harness.run.libraries import runtime_files


@pytest.fixture
def build(tmp_path: Path) -> Path:
    for preset in ("host", "android-arm64"):
        (tmp_path / "build" / preset).mkdir(parents=True)
        (tmp_path / "build" / preset / "snapgate-runner").write_text(f"runner for {preset}")
    return tmp_path / "build"


def qnn_folder(folder: Path, names: list[str]) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


FLAT = ["libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV75Stub.so", "libQnnHtpV75Skel.so"]


def test_a_phone_gets_its_own_runner_and_the_libraries_of_its_arch(build: Path, tmp_path: Path) -> None:
    found = runtime_files("arm64-v8a", 75, build_dir=build, qnn_android=qnn_folder(tmp_path / "qnn", FLAT))
    assert found.runner.local == build / "android-arm64" / "snapgate-runner"
    assert [str(file.place) for file in found.libraries] == [f"libs/{name}" for name in FLAT]


def test_the_layout_of_the_sdk_is_understood(build: Path, tmp_path: Path) -> None:
    names = [
        "lib/aarch64-android/libQnnHtp.so",
        "lib/aarch64-android/libQnnSystem.so",
        "lib/aarch64-android/libQnnHtpV79Stub.so",
        "lib/hexagon-v79/unsigned/libQnnHtpV79Skel.so",
    ]
    found = runtime_files("arm64-v8a", 79, build_dir=build, qnn_android=qnn_folder(tmp_path / "sdk", names))
    assert {file.name for file in found.libraries} == {
        "libQnnHtp.so",
        "libQnnSystem.so",
        "libQnnHtpV79Stub.so",
        "libQnnHtpV79Skel.so",
    }


def test_libraries_of_another_arch_do_not_serve_and_every_missing_file_is_named(build: Path, tmp_path: Path) -> None:
    folder = qnn_folder(tmp_path / "qnn", FLAT)
    with pytest.raises(HostError) as caught:
        runtime_files("arm64-v8a", 79, build_dir=build, qnn_android=folder)
    assert "libQnnHtpV79Stub.so" in str(caught.value)
    assert "libQnnHtpV79Skel.so" in str(caught.value)
    assert "libQnnSystem.so" not in str(caught.value)


def test_runner_and_libraries_are_missed_in_one_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SNAPGATE_QNN_ANDROID", raising=False)
    with pytest.raises(HostError) as caught:
        runtime_files("arm64-v8a", 75, build_dir=tmp_path)
    message = str(caught.value)
    assert "android-arm64/snapgate-runner" in message
    assert "libQnnHtpV75Skel.so" in message
    assert "make runner-android" in message
    assert "set SNAPGATE_QNN_ANDROID" in message


def test_the_folder_may_be_named_by_the_environment(
    build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPGATE_QNN_ANDROID", str(qnn_folder(tmp_path / "qnn", FLAT)))
    assert len(runtime_files("arm64-v8a", 75, build_dir=build).libraries) == 4


def test_a_32_bit_phone_has_no_runner(build: Path) -> None:
    with pytest.raises(HostError, match="no runner for ABI armeabi-v7a"):
        runtime_files("armeabi-v7a", 75, build_dir=build)


def test_the_dsp_path_is_separated_by_semicolons_and_never_the_vendors_cpu_folder(build: Path, tmp_path: Path) -> None:
    found = runtime_files("arm64-v8a", 75, build_dir=build, qnn_android=qnn_folder(tmp_path / "qnn", FLAT))
    environment = found.environment(PurePosixPath("/d/r"))
    assert environment["LD_LIBRARY_PATH"] == "/d/r/libs"
    assert environment["ADSP_LIBRARY_PATH"].split(";")[0] == "/d/r/libs"
    assert ":" not in environment["ADSP_LIBRARY_PATH"]
    assert "/vendor/lib64" not in environment["ADSP_LIBRARY_PATH"]


@pytest.mark.lane("qnn")
def test_an_x86_phone_gets_the_wheels_libraries_and_what_they_need(build: Path) -> None:
    found = runtime_files("x86_64", 75, build_dir=build)
    names = [file.name for file in found.libraries]
    assert found.runner.local == build / "host" / "snapgate-runner"
    assert names[:2] == ["libQnnHtp.so", "libQnnSystem.so"]
    assert any(name.startswith("libc++-") for name in names)
    assert "libHtpPrepare.so" not in names
