"""Files to a phone and back: whole, or not at all."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from harness.device.adb import Adb, AdbDevice
from harness.device.store import PREPARE, ROOT, PhoneStore, StoredFile
from harness.errors import HostError, InfraError, PhoneStorageError, TransferError
from harness.virtual.lab import PhoneSpec, VirtualLab, VirtualPhone

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.xdist_group("wire-files")]

FOLDER = PurePosixPath("/data/local/tmp/files")
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def folder(device: AdbDevice) -> None:
    device.run(["rm", "-rf", FOLDER, ROOT])
    device.run(["mkdir", "-p", FOLDER])


def there(device: AdbDevice, folder: PurePosixPath = FOLDER) -> list[str]:
    return device.run(["find", folder, "-type", "f"]).text.splitlines()


def local_file(tmp_path: Path, size: int, fill: int = 7) -> Path:
    path = tmp_path / f"f{size}-{fill}"
    path.write_bytes(bytes([fill]) * size)
    return path


def test_a_file_goes_there_and_back_unchanged(device: AdbDevice, tmp_path: Path) -> None:
    local = tmp_path / "in"
    local.write_bytes(bytes(range(256)) * 4097)
    digest = device.push(local, FOLDER / "x", mode=0o755)
    assert digest == hashlib.sha256(local.read_bytes()).hexdigest()
    assert device.pull(FOLDER / "x", tmp_path / "out") == digest
    assert (tmp_path / "out").read_bytes() == local.read_bytes()
    assert there(device) == [f"{FOLDER}/x"]
    assert device.run(["test", "-x", FOLDER / "x"]).exit_code == 0


def test_a_bit_flipped_on_the_way_is_found_and_nothing_is_left(
    device: AdbDevice, virtual: VirtualPhone, tmp_path: Path
) -> None:
    virtual.corrupt_push(offset=1000)
    with pytest.raises(TransferError, match="damaged on the way"):
        device.push(local_file(tmp_path, 4096), FOLDER / "x")
    assert there(device) == []


def test_a_cable_pulled_in_mid_push_leaves_no_file_under_the_final_name(
    device: AdbDevice, virtual: VirtualPhone, tmp_path: Path
) -> None:
    virtual.fail_push_by_disconnect(after_bytes=MIB)
    with pytest.raises(InfraError) as caught:
        device.push(local_file(tmp_path, 8 * MIB), FOLDER / "x")
    assert caught.value.transient
    assert device.wait(20)
    assert f"{FOLDER}/x" not in there(device)


def test_a_phone_that_runs_full_says_so(device: AdbDevice, virtual: VirtualPhone, tmp_path: Path) -> None:
    virtual.fail_push_by_full_storage(after_bytes=100_000)
    with pytest.raises(PhoneStorageError, match="is full") as caught:
        device.push(local_file(tmp_path, MIB), FOLDER / "x")
    assert caught.value.found is not None
    assert "No space left on device" in caught.value.found
    assert there(device) == []


def test_a_folder_that_is_not_there_says_so(device: AdbDevice, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="push"):
        device.push(local_file(tmp_path, 10), PurePosixPath("/proc/nowhere/x"))


def test_pulling_what_is_not_there_leaves_nothing_here(device: AdbDevice, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="No such file"):
        device.pull(FOLDER / "missing", tmp_path / "sub" / "missing")
    assert list(tmp_path.rglob("*missing*")) == []


def test_content_that_is_not_what_was_recorded_is_never_stored(device: AdbDevice, tmp_path: Path) -> None:
    with pytest.raises(HostError, match="not what was recorded"):
        device.push(local_file(tmp_path, 10), FOLDER / "x", sha256="0" * 64)
    assert there(device) == []


def test_the_store_pushes_once_and_links_into_a_run_folder(device: AdbDevice, tmp_path: Path) -> None:
    store = PhoneStore(device)
    store.prepare()
    script = tmp_path / "program"
    script.write_text("#!/bin/sh\necho it runs\n")
    files = [
        StoredFile.of(script, "program", executable=True),
        StoredFile.of(local_file(tmp_path, 5000), "libs/data"),
    ]
    first = store.ensure(files, progress=lambda _: None)
    assert (first.n_pushed, first.bytes_pushed) == (2, 5000 + script.stat().st_size)
    again = store.ensure(files, progress=lambda _: None)
    assert (again.n_pushed, again.bytes_pushed) == (0, 0)
    run = store.make_run_folder("r1", files)
    assert device.run([run / "program"]).text == "it runs\n"
    assert device.run(["wc", "-c", run / "libs" / "data"]).text.split()[0] == "5000"
    store.remove_run_folder("r1")
    assert {resident.name for resident in store.residents()} == {"program", "data"}


def test_a_changed_file_is_another_file(device: AdbDevice, tmp_path: Path) -> None:
    store = PhoneStore(device)
    store.prepare()
    for fill in (1, 2):
        report = store.ensure([StoredFile.of(local_file(tmp_path, 100, fill), "x")], progress=lambda _: None)
        assert report.n_pushed == 1
    assert len(store.residents()) == 2


def test_a_file_cut_short_on_the_phone_is_pushed_again(device: AdbDevice, tmp_path: Path) -> None:
    store = PhoneStore(device)
    store.prepare()
    file = StoredFile.of(local_file(tmp_path, 100), "x")
    store.ensure([file], progress=lambda _: None)
    where = ROOT / "store" / file.sha256 / "x"
    device.script('rm -f "$1"; printf short > "$1"', where, what="damage")
    assert store.ensure([file], progress=lambda _: None).n_pushed == 1
    assert device.run(["sha256sum", where]).text.split()[0] == file.sha256


def test_what_a_dead_run_left_is_cleared_and_the_store_stays(device: AdbDevice, tmp_path: Path) -> None:
    store = PhoneStore(device)
    store.prepare()
    file = StoredFile.of(local_file(tmp_path, 100), "x")
    store.ensure([file], progress=lambda _: None)
    run = store.make_run_folder("dead", [file])
    half = ROOT / "store" / file.sha256 / ".x.new"
    started = device.script(
        'cp /system/bin/sh "$1/snapgate-runner"; cd "$1"; echo half > "$2"\n'
        './snapgate-runner -c "while :; do sleep 1; done" >/dev/null 2>&1 &\n'
        'echo $! > "$1/pid"; cat "$1/pid"',
        run,
        half,
        what="leave a run behind",
    )
    pid = started.text.strip()
    assert device.run(["kill", "-0", pid]).exit_code == 0
    store.clean()
    assert device.script('read -r a b c rest < /proc/$1/stat && [ "$c" != Z ]', pid, what="look").exit_code != 0
    assert there(device, ROOT) == [f"{ROOT}/store/{file.sha256}/x"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbDevice]:
    """A phone with 100 MiB of storage."""
    with VirtualLab.start(tmp_path_factory.mktemp("small"), [PhoneSpec(marker="gen3", storage_bytes=100 * MIB)]) as lab:
        yield Adb(lab.adb_host, lab.adb_port).device(lab.phones[0].transport)


def test_a_set_that_cannot_fit_is_refused_before_anything_is_pushed(small: AdbDevice, tmp_path: Path) -> None:
    store = PhoneStore(small)
    store.prepare()
    with pytest.raises(PhoneStorageError, match="has no room") as caught:
        store.ensure([StoredFile.of(local_file(tmp_path, 50 * MIB), "big")], progress=lambda _: None)
    assert caught.value.expected is not None
    assert caught.value.expected.startswith("120 MB")
    assert there(small, ROOT) == []


def test_the_longest_unused_file_makes_room_and_one_in_use_never(small: AdbDevice, tmp_path: Path) -> None:
    old = StoredFile.of(local_file(tmp_path, 14 * MIB, 1), "old")
    held = StoredFile.of(local_file(tmp_path, 14 * MIB, 2), "held")
    new = StoredFile.of(local_file(tmp_path, 14 * MIB, 3), "new")
    before = PhoneStore(small)
    before.prepare()
    before.ensure([old, held], progress=lambda _: None)
    small.run(["touch", "-d", "2020-01-01 00:00:00", ROOT / "store" / old.sha256 / "old"])
    store = PhoneStore(small)
    store.ensure([held], progress=lambda _: None)
    # By age alone it would now be the first to go.
    small.run(["touch", "-d", "2019-01-01 00:00:00", ROOT / "store" / held.sha256 / "held"])
    store.ensure([new], progress=lambda _: None)
    assert {resident.name for resident in store.residents()} == {"held", "new"}


def test_a_folder_on_a_noexec_mount_is_told_by_status_126(tmp_path: Path) -> None:
    """The store's own script, in a mount namespace of its own, for a virtual phone has no noexec place."""
    if subprocess.run(["unshare", "-Urm", "true"], capture_output=True, timeout=20, check=False).returncode != 0:
        pytest.skip("this host forbids user namespaces, which a noexec mount without being root needs")
    mounted = 'mount -t tmpfs -o noexec tmpfs "$1" && exec sh -c "$2" snapgate "$1/snapgate"'
    result = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", mounted, "sh", tmp_path, PREPARE],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, b"ermission denied" in result.stdout + result.stderr) == (126, True)
