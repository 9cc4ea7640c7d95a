from __future__ import annotations

import socket
from typing import Any

import adbutils
import pytest

from harness.virtual import VirtualLab

pytestmark = pytest.mark.lane("virtual")


def test_adb_lists_both_phones_as_device_with_product_and_model(server: Any, lab: VirtualLab) -> None:
    lines = server.run("devices", "-l").stdout.decode().splitlines()
    listed = {line.split()[0]: line.split()[1:5] for line in lines[1:] if line}
    gen3, elite = (phone.transport for phone in lab.phones)
    assert listed == {
        gen3: ["device", "product:vdev_gen3", "model:SM8650_virtual", "device:vdev_gen3"],
        elite: ["device", "product:vdev_elite", "model:SM8750_virtual", "device:vdev_elite"],
    }


def test_two_phones_have_their_own_serial_soc_and_boot_id(adb: Any, small_adb: Any) -> None:
    command = "getprop ro.serialno; getprop ro.soc.model; cat /proc/sys/kernel/random/boot_id"
    first, second = adb.shell(command).split(), small_adb.shell(command).split()
    assert first[:2] == ["VDEVGEN3001", "SM8650"]
    assert second[:2] == ["VDEVELITE001", "SM8750"]
    assert first[2] != second[2]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ro.snapgate.virtual", "1"),
        ("ro.hardware", "vdev"),
        ("ro.product.manufacturer", "SnapGate Virtual"),
        ("ro.product.cpu.abi", "x86_64"),
        ("ro.board.platform", "pineapple"),
        ("ro.boot.verifiedbootstate", "green"),
        ("ro.build.version.release", "15"),
        ("ro.build.version.sdk", "35"),
        ("sys.boot_completed", "1"),
        ("no.such.property", ""),
    ],
)
def test_a_property_reads_as_the_profile_says(adb: Any, key: str, value: str) -> None:
    assert adb.shell(f"getprop {key}") == value + "\n"


def test_getprop_alone_lists_every_property_in_brackets(adb: Any) -> None:
    lines = adb.shell("getprop").splitlines()
    assert "[ro.soc.model]: [SM8650]" in lines
    assert all(line.startswith("[") and "]: [" in line and line.endswith("]") for line in lines)


def test_setprop_keeps_a_value_with_spaces_and_refuses_read_only_names(adb: Any) -> None:
    assert adb.shell("setprop debug.note 'two words=1'; getprop debug.note") == "two words=1\n"
    refused = adb.run("shell", "setprop ro.soc.model SM9999")
    assert refused.returncode == 1
    assert b"Failed to set property 'ro.soc.model' to 'SM9999'" in refused.stderr
    assert adb.shell("getprop ro.soc.model") == "SM8650\n"


def test_adbutils_sees_the_phones_and_their_properties(lab: VirtualLab) -> None:
    client = adbutils.AdbClient(host=lab.adb_host, port=lab.adb_port)
    listed = {info.serial: info.state for info in client.list()}
    assert listed == {phone.transport: "device" for phone in lab.phones}
    device = client.device(lab.phones[0].transport)
    assert device.prop.model == "SM8650 virtual"
    assert set(device.get_features().split(",")) >= {"shell_v2", "stat_v2", "ls_v2", "sendrecv_v2"}


def test_the_private_server_has_its_own_port_and_refuses_to_be_killed_by_a_client(server: Any, lab: VirtualLab) -> None:
    assert lab.adb_port != 5037
    server.run("kill-server")
    assert b"device" in server.run("devices").stdout
    with socket.create_connection((lab.adb_host, lab.adb_port), timeout=10):
        pass


def test_services_that_a_user_build_lacks_are_refused(adb: Any) -> None:
    assert b"cannot run as root in production builds" in adb.run("root").stdout
    assert adb.run("tcpip", "5555").returncode != 0
    assert adb.run("jdwp", timeout_s=20).returncode != 0
    assert adb.shell("echo still here") == "still here\n"
