"""Discovery and lease, through the real adb server and across processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.main import main
from harness.device.adb import AdbDevice
from harness.device.lease import FENCE
from harness.device.phone import LeasedPhone
from harness.errors import LeaseError, PhoneLostError
from harness.pool.local import PhoneInfo, acquire, discover
from harness.virtual.lab import PhoneSpec, VirtualLab, VirtualPhone

pytestmark = [pytest.mark.lane("virtual"), pytest.mark.xdist_group("wire-pool")]

HOLDER = """
import sys, time
from pathlib import Path
from harness.pool.local import acquire, discover
info = discover("127.0.0.1", int(sys.argv[1]))[0]
phone = acquire(info.facts, holder="the other process", adb_port=int(sys.argv[1]), state_dir=Path(sys.argv[2]))
print("held", flush=True)
time.sleep(300)
"""


def take(lab: VirtualLab, info: PhoneInfo, state_dir: Path, holder: str = "me") -> LeasedPhone:
    assert info.facts is not None
    return acquire(info.facts, holder=holder, adb_host=lab.adb_host, adb_port=lab.adb_port, state_dir=state_dir)


def test_a_phone_is_found_with_its_facts(info: PhoneInfo, virtual: VirtualPhone) -> None:
    assert info.facts is not None
    assert (info.usable, info.reason, info.transport) == (True, None, virtual.transport)
    assert (info.facts.serial, info.facts.part, info.facts.abi) == (virtual.serial, "SM8650", "x86_64")
    assert info.facts.virtual is True
    assert len(info.facts.boot_id) == 36


def told(lab: VirtualLab, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["devices", "--adb-host", lab.adb_host, "--adb-port", str(lab.adb_port), *options]) == 0
    return capsys.readouterr().out


def test_a_phone_is_shown_with_what_it_brings_along(
    lab: VirtualLab, virtual: VirtualPhone, capsys: pytest.CaptureFixture[str]
) -> None:
    library = lab.state_dir / "phones" / virtual.serial / "root/vendor/lib64/libcdsprpc.so"
    bare = json.loads(told(lab, capsys, "--json"))["phones"][0]["inventory"]
    library.write_bytes(b"\x7fELF\0rpcmem_alloc\0rpcmem_to_fd\0")
    try:
        phone = json.loads(told(lab, capsys, "--json"))["phones"][0]
        shown = told(lab, capsys).splitlines()
    finally:
        library.unlink()
    assert (bare["libraries"], bare["symbols"], bare["symbols_unavailable"]) == ([], [], "no libcdsprpc.so")
    assert (phone["htp_arch"], phone["usable"], phone["inventory"]["verified_boot"]) == (75, True, "green")
    assert phone["inventory"]["libraries"] == ["/vendor/lib64/libcdsprpc.so"]
    assert phone["inventory"]["symbols"] == ["rpcmem_alloc", "rpcmem_to_fd"]
    assert phone["inventory"]["symbols_unavailable"] is None
    assert f"{virtual.transport:24} {virtual.serial:16} virtual  usable" in shown
    assert "  HTP                    v75" in shown
    assert "  verified boot          green" in shown
    assert "  libcdsprpc.so symbols  rpcmem_alloc, rpcmem_to_fd" in shown


def test_two_phones_are_found_in_order_of_their_serials(tmp_path: Path) -> None:
    specs = [PhoneSpec(marker="gen2", serial="ZZZ"), PhoneSpec(marker="elite", serial="AAA")]
    with VirtualLab.start(tmp_path, specs) as lab:
        found = discover(lab.adb_host, lab.adb_port)
    assert [(i.facts.serial, i.facts.part) for i in found if i.facts] == [("AAA", "SM8750"), ("ZZZ", "SM8550")]


def test_a_phone_without_power_is_listed_with_the_reason(lab: VirtualLab, virtual: VirtualPhone) -> None:
    virtual.kill()
    try:
        found = discover(lab.adb_host, lab.adb_port)
        assert [i.usable for i in found] == [False]
        assert found[0].reason is not None
        assert found[0].reason.startswith("offline: adb has lost the connection")
    finally:
        virtual.reboot()


def test_a_second_process_is_refused_and_told_who_holds_the_phone(
    lab: VirtualLab, info: PhoneInfo, tmp_path: Path
) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lab.adb_port), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LeaseError, match="is in use") as caught:
            take(lab, info, tmp_path)
        assert caught.value.found == f"held by the other process (process {other.pid})"
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        take(lab, info, tmp_path).release()
    finally:
        other.kill()
        other.communicate()


def test_another_host_is_refused_by_the_fence_on_the_phone(lab: VirtualLab, info: PhoneInfo, tmp_path: Path) -> None:
    with (
        take(lab, info, tmp_path / "host-a", "nightly on host a"),
        pytest.raises(LeaseError, match="held by nightly on host a, for at most"),
    ):
        take(lab, info, tmp_path / "host-b")
    take(lab, info, tmp_path / "host-b").release()


def test_a_reboot_voids_the_fence_of_a_host_that_is_gone(
    lab: VirtualLab, info: PhoneInfo, tmp_path: Path, virtual: VirtualPhone
) -> None:
    take(lab, info, tmp_path / "host-a")  # never released: that host is gone
    virtual.reboot()
    take(lab, info, tmp_path / "host-b").release()


def test_a_lease_that_another_host_took_over_is_noticed_at_renewal(
    lab: VirtualLab, info: PhoneInfo, tmp_path: Path
) -> None:
    first = take(lab, info, tmp_path / "host-a", "first")
    first.lease.renew(valid_s=0)
    with take(lab, info, tmp_path / "host-b", "second"):
        with pytest.raises(LeaseError, match="was lost") as caught:
            first.lease.renew()
        assert caught.value.found is not None
        assert caught.value.found.startswith("held by second")
        first.release()
        with pytest.raises(LeaseError, match="held by second"):
            take(lab, info, tmp_path / "host-c")


def test_a_released_phone_carries_no_fence(phone: LeasedPhone, device: AdbDevice) -> None:
    assert device.run(["test", "-f", FENCE]).exit_code == 0
    phone.release()
    assert device.run(["test", "-f", FENCE]).exit_code == 1


def test_a_transport_that_now_leads_to_another_phone_is_refused(
    lab: VirtualLab, info: PhoneInfo, tmp_path: Path
) -> None:
    assert info.facts is not None
    stranger = type(info.facts)(**{**{f: getattr(info.facts, f) for f in info.facts.__slots__}, "serial": "OTHER"})
    with pytest.raises(PhoneLostError, match="no longer at"):
        acquire(stranger, holder="me", adb_port=lab.adb_port, state_dir=tmp_path)
