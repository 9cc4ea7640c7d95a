"""Large files into the store: pushes that break and go on, and new versions of which only the changes travel."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.device import adb as adb_module
from harness.device.adb import AdbDevice
from harness.device.store import ROOT, PhoneStore, PushReport, StoredFile
from harness.device.upload import How
from harness.errors import InfraError, PhoneStorageError
from harness.virtual.lab import VirtualPhone

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.xdist_group("wire-uploads")]

MIB = 1024 * 1024
SIZE = 40 * MIB + 12_345

Push = Callable[[Path], PushReport]


@pytest.fixture(autouse=True)
def store(device: AdbDevice) -> PhoneStore:
    device.run(["rm", "-rf", ROOT])
    store = PhoneStore(device)
    store.prepare()
    return store


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(np.random.default_rng(3).bytes(SIZE))
    return path


@pytest.fixture
def push(device: AdbDevice) -> Push:
    """A push by a process that remembers nothing, as the next run of the harness is."""

    def go(path: Path) -> PushReport:
        fresh = PhoneStore(device)
        fresh.clean()
        report = fresh.ensure([StoredFile.of(path, "model.bin")], progress=lambda _: None)
        there = ROOT / "store" / hashlib.sha256(path.read_bytes()).hexdigest() / "model.bin"
        assert device.run(["sha256sum", there]).text.split()[0] == hashlib.sha256(path.read_bytes()).hexdigest()
        assert device.run(["stat", "-c", "%a", there]).text.strip() == "444"
        return report

    return go


def beside(device: AdbDevice) -> list[str]:
    """What lies in the store under names that no run uses."""
    names = device.script('cd "$1"; ls -A store/*', ROOT, what="look").text.split()
    return sorted(name for name in names if name.startswith(".") and not name.endswith(".blocks"))


def changed(path: Path, *spans: tuple[int, int]) -> Path:
    """A new version in a file of its own, with other bytes at ``(offset, length)``."""
    data = bytearray(path.read_bytes())
    for offset, n in spans:
        data[offset : offset + n] = bytes(b ^ 0xFF for b in data[offset : offset + n])
    new = path.with_name("next.bin")
    new.write_bytes(data)
    return new


def test_of_a_new_version_only_the_changed_blocks_are_sent(push: Push, device: AdbDevice, model: Path) -> None:
    assert push(model).files[0].how is How.WHOLE
    # In blocks of 16 KiB: 0, 1 and 2 of the first change, the short last one of the second.
    report = push(changed(model, (10_000, 30_000), (SIZE - 3, 3)))
    assert report.files[0].how is How.CHANGES
    assert report.bytes_pushed == 3 * 16_384 + 12_345
    assert beside(device) == []


@pytest.mark.parametrize("size", [SIZE - 5 * MIB, SIZE + 5 * MIB], ids=["shorter", "longer"])
def test_a_version_of_another_length_is_put_together_too(push: Push, model: Path, size: int) -> None:
    push(model)
    data = model.read_bytes()
    new = model.with_name("next.bin")
    new.write_bytes(data[:size] + np.random.default_rng(4).bytes(max(0, size - SIZE)))
    report = push(new)
    assert report.files[0].how is How.CHANGES
    assert report.bytes_pushed == (0 if size % 16_384 == 0 else size % 16_384) if size < SIZE else 5 * MIB + 12_345


def test_a_version_that_shares_little_is_sent_whole(push: Push, model: Path) -> None:
    push(model)
    report = push(changed(model, (0, 30 * MIB)))
    assert (report.files[0].how, report.bytes_pushed) == (How.WHOLE, SIZE)
    assert report.files[0].fell_back is None


def test_a_version_on_the_phone_that_rotted_is_found_by_the_hash_of_the_whole(
    push: Push, device: AdbDevice, model: Path
) -> None:
    push(model)
    old = ROOT / "store" / hashlib.sha256(model.read_bytes()).hexdigest() / "model.bin"
    rot = 'chmod 644 "$1"; printf rotten | dd of="$1" bs=1 seek=20000000 conv=notrunc 2>/dev/null'
    device.script(rot, old, what="damage")
    report = push(changed(model, (0, 10)))
    assert report.files[0].how is How.WHOLE
    assert (report.files[0].fell_back or "").startswith("changes gave sha256 ")
    assert report.bytes_pushed == SIZE + 16_384
    assert beside(device) == []


def test_a_push_that_broke_goes_on_where_it_was(
    push: Push, device: AdbDevice, virtual: VirtualPhone, model: Path
) -> None:
    virtual.fail_push_by_disconnect(after_bytes=25 * MIB)
    with pytest.raises(InfraError) as caught:
        push(model)
    assert caught.value.transient
    assert device.wait(20)
    assert beside(device) == [".model.bin.part"]
    report = push(model)
    assert (report.files[0].how, report.bytes_pushed) == (How.RESUMED, SIZE - 25 * MIB)
    assert beside(device) == []


def test_it_may_break_twice(push: Push, device: AdbDevice, virtual: VirtualPhone, model: Path) -> None:
    for after, pattern in ((4 * MIB, "*.part"), (7 * MIB, "*.tail.*")):
        virtual.fail_push_by_disconnect(after_bytes=after, pattern=pattern)
        with pytest.raises(InfraError):
            push(model)
        assert device.wait(20)
    assert push(model).bytes_pushed == SIZE - 11 * MIB
    assert beside(device) == []


def test_a_part_that_is_not_the_beginning_of_the_file_is_thrown_away(
    push: Push, device: AdbDevice, virtual: VirtualPhone, model: Path
) -> None:
    virtual.fail_push_by_disconnect(after_bytes=10 * MIB)
    with pytest.raises(InfraError):
        push(model)
    assert device.wait(20)
    part = ROOT / "store" / hashlib.sha256(model.read_bytes()).hexdigest() / ".model.bin.part"
    device.script('head -c 1000000 /dev/zero | dd of="$1" conv=notrunc 2>/dev/null', part, what="damage")
    report = push(model)
    assert report.files[0].how is How.WHOLE
    assert (report.files[0].fell_back or "").startswith("resumed gave sha256 ")
    assert beside(device) == []


def test_a_bit_flipped_in_the_changes_is_found(push: Push, virtual: VirtualPhone, model: Path) -> None:
    push(model)
    virtual.corrupt_push(pattern="*.patch", offset=7)
    report = push(changed(model, (0, 10)))
    assert report.files[0].how is How.WHOLE
    assert report.files[0].fell_back is not None


def test_storage_that_runs_full_leaves_no_half_file(
    push: Push, device: AdbDevice, virtual: VirtualPhone, model: Path
) -> None:
    virtual.fail_push_by_full_storage(after_bytes=9 * MIB)
    with pytest.raises(PhoneStorageError, match="is full"):
        push(model)
    assert beside(device) == []


def test_an_artifact_that_is_there_costs_one_round_trip(
    store: PhoneStore, device: AdbDevice, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [StoredFile.of(model, "model.bin"), StoredFile.of(model, "libs/again.bin")]
    store.ensure(files, progress=lambda _: None)
    opened: list[str] = []
    real = adb_module.AdbDevice._open

    def counted(self: AdbDevice, service: str) -> object:
        opened.append(service)
        return real(self, service)

    monkeypatch.setattr(adb_module.AdbDevice, "_open", counted)
    report = store.ensure(files, progress=lambda _: None)
    assert (report.n_pushed, report.bytes_pushed, len(opened)) == (0, 0, 1)
