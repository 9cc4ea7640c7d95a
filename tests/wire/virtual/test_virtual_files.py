from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import adbutils
import pytest

from harness.virtual import VirtualLab, VirtualPhone

pytestmark = pytest.mark.lane("virtual")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_64_megabytes_pushed_and_pulled_are_the_same(adb: Any, scratch: str, noise: Path, tmp_path: Path) -> None:
    assert adb.run("push", str(noise), f"{scratch}/noise").returncode == 0
    assert adb.shell(f"sha256sum {scratch}/noise").split()[0] == _sha256(noise)
    assert adb.run("pull", f"{scratch}/noise", str(tmp_path / "back")).returncode == 0
    assert _sha256(tmp_path / "back") == _sha256(noise)


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 15 * 65536, 15 * 65536 + 1, 30 * 65536])
def test_a_file_at_a_record_boundary_survives_the_round_trip(adb: Any, scratch: str, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "out").write_bytes(content)
    assert adb.run("push", str(tmp_path / "out"), f"{scratch}/f").returncode == 0
    assert adb.run("pull", f"{scratch}/f", str(tmp_path / "in")).returncode == 0
    assert (tmp_path / "in").read_bytes() == content


def test_a_tree_arrives_with_its_links_modes_and_times(adb: Any, scratch: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "deep" / "er").mkdir(parents=True)
    (tree / "deep" / "er" / "run").write_text("#!/system/bin/sh\necho ran\n")
    (tree / "deep" / "er" / "run").chmod(0o750)
    os.utime(tree / "deep" / "er" / "run", (1_700_000_000, 1_700_000_000))
    (tree / "link").symlink_to("deep/er/run")
    assert adb.run("push", str(tree), scratch).returncode == 0
    run = f"{scratch}/tree/deep/er/run"
    # The owner's permissions are given to everybody, as the genuine daemon does.
    assert adb.shell(f"stat -c '%a %Y' {run}").split() == ["777", "1700000000"]
    assert adb.shell(f"{scratch}/tree/link") == "ran\n"
    assert adb.shell(f"readlink {scratch}/tree/link") == "deep/er/run\n"


def test_listing_and_stat_agree_with_the_shell(lab: VirtualLab, phone: VirtualPhone, adb: Any, scratch: str) -> None:
    adb.shell(f"head -c 12345 /dev/zero > '{scratch}/a b'; mkdir {scratch}/sub")
    sync = adbutils.AdbClient(host=lab.adb_host, port=lab.adb_port).device(phone.transport).sync
    entries = {entry.path: entry for entry in sync.list(scratch)}
    assert {"a b", "sub"} <= set(entries)
    assert entries["a b"].size == 12345
    assert sync.stat(f"{scratch}/a b").size == 12345
    assert not sync.exists(f"{scratch}/missing")
    assert b"12345" in adb.run("ls", scratch).stdout or b"00003039" in adb.run("ls", scratch).stdout


def test_adbutils_pushes_and_pulls(lab: VirtualLab, phone: VirtualPhone, scratch: str, tmp_path: Path) -> None:
    sync = adbutils.AdbClient(host=lab.adb_host, port=lab.adb_port).device(phone.transport).sync
    content = os.urandom(3_000_000)
    (tmp_path / "a").write_bytes(content)
    assert sync.push(tmp_path / "a", f"{scratch}/a", 0o755) == 3_000_000
    assert sync.read_bytes(f"{scratch}/a") == content
    assert sync.pull(f"{scratch}/a", tmp_path / "b") == 3_000_000
    assert (tmp_path / "b").read_bytes() == content


def test_a_push_over_a_running_programs_file_replaces_it(adb: Any, scratch: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    adb.run("push", str(tmp_path / "a"), f"{scratch}/a")
    adb.shell(f"ln {scratch}/a {scratch}/kept")
    (tmp_path / "a").write_text("two")
    adb.run("push", str(tmp_path / "a"), f"{scratch}/a")
    assert adb.shell(f"cat {scratch}/a {scratch}/kept") == "twoone"


def test_a_push_to_an_impossible_place_names_the_cause(adb: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    done = adb.run("push", str(tmp_path / "a"), "/proc/nope/a")
    assert done.returncode == 1
    assert b"secure_mkdirs failed: No such file or directory" in done.stderr
    done = adb.run("push", str(tmp_path / "a"), "/system/a")
    assert done.returncode == 1
    assert b"Read-only file system" in done.stderr


def test_pulling_what_is_not_there_leaves_no_file(adb: Any, tmp_path: Path) -> None:
    assert adb.run("pull", "/data/local/tmp/not-there", str(tmp_path / "x")).returncode == 1
    assert not (tmp_path / "x").exists()


def test_a_cable_pulled_mid_push_leaves_exactly_the_bytes_that_arrived(
    adb: Any, phone: VirtualPhone, scratch: str, noise: Path, wait_for: Any
) -> None:
    phone.fail_push_by_disconnect(20_000_000, pattern="*/cut")
    assert adb.run("push", str(noise), f"{scratch}/cut").returncode == 1
    wait_for(lambda: adb.run("get-state").stdout == b"device\n", "the phone is back")
    assert adb.shell(f"stat -c %s {scratch}/cut") == "20000000\n"
    assert adb.run("push", str(noise), f"{scratch}/cut").returncode == 0
    assert adb.shell(f"stat -c %s {scratch}/cut") == f"{64 << 20}\n"


def test_a_corrupted_push_reports_success_and_differs_in_one_byte(
    adb: Any, phone: VirtualPhone, scratch: str, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"A" * 1000)
    phone.corrupt_push(pattern="*/hit", offset=500)
    assert adb.run("push", str(tmp_path / "a"), f"{scratch}/spared").returncode == 0
    assert adb.run("push", str(tmp_path / "a"), f"{scratch}/hit").returncode == 0
    assert adb.shell(f"cat {scratch}/spared") == "A" * 1000
    assert adb.shell(f"cat {scratch}/hit") == "A" * 500 + "@" + "A" * 499
    assert adb.run("push", str(tmp_path / "a"), f"{scratch}/hit").returncode == 0
    assert adb.shell(f"cat {scratch}/hit") == "A" * 1000


def test_a_push_failed_by_full_storage_is_named_and_removed(
    adb: Any, phone: VirtualPhone, scratch: str, noise: Path
) -> None:
    phone.fail_push_by_full_storage(10_000_000)
    done = adb.run("push", str(noise), f"{scratch}/full")
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert adb.run("shell", f"ls {scratch}/full").returncode != 0


def test_a_phone_of_48_megabytes_is_really_full(small_adb: Any, noise: Path) -> None:
    done = small_adb.run("push", str(noise), "/data/local/tmp/noise")
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    filled = small_adb.run("shell", "dd if=/dev/zero of=/data/local/tmp/z bs=65536 count=1000; rm /data/local/tmp/z")
    assert b"No space left on device" in filled.stderr
    assert small_adb.shell("df -k /data/local/tmp | tail -n 1").split()[1] == str(48 * 1024)
