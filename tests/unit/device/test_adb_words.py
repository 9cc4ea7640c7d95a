"""What adb says: lists of devices, faults, and a server that is not there."""

from __future__ import annotations

import socket
import threading

import pytest

from harness.device.adb import Adb
from harness.device.faults import fault
from harness.device.server import Attached, parse_devices
from harness.device.text import printable, printable_lines
from harness.errors import HostError, InfraError, PhoneLostError, PhoneStorageError, TransferError


def test_every_state_is_read_and_noise_passed_over() -> None:
    text = (
        "adb server version (41) doesn't match this client (40); killing...\n"
        "* daemon started successfully\n"
        "List of devices attached\n"
        "R5CX10ABCDE            device usb:1-1 product:e1q model:SM_S921U device:e1q transport_id:3\n"
        "127.0.0.1:6001 offline transport_id:4\n"
        "8A2X unauthorized usb:1-2 transport_id:5\n"
        "9B3Y no permissions (user in plugdev group; are your udev rules wrong?); see [http://x] usb:1-3\n"
        "(no serial number) recovery\n"
        "\n"
    )
    assert [(d.transport, d.state) for d in parse_devices(text)] == [
        ("R5CX10ABCDE", "device"),
        ("127.0.0.1:6001", "offline"),
        ("8A2X", "unauthorized"),
        ("9B3Y", "no permissions"),
        ("(no serial number)", "recovery"),
    ]


def test_the_rest_of_a_line_is_kept_as_detail() -> None:
    assert parse_devices("X device product:a model:b\n") == (
        Attached(transport="X", state="device", detail="product:a model:b"),
    )


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        ("remote write failed: No space left on device", PhoneStorageError, "is full"),
        ("couldn't create file: Read-only file system", PhoneStorageError, "read-only"),
        ("remote secure_mkdirs failed: No such file or directory", PhoneStorageError, "does not allow it"),
        ("couldn't create file: Permission denied", PhoneStorageError, "does not allow it"),
        ("device offline", PhoneLostError, "is gone"),
        ("device 'R5' not found", PhoneLostError, "is gone"),
        ("device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set", InfraError, "does not trust this host"),
        ("closed", TransferError, "connection to phone R5 failed"),
        ("", TransferError, "closed without a word"),
    ],
)
def test_each_fault_has_its_own_error(message: str, kind: type[InfraError], words: str) -> None:
    error = fault(message, what="push f", phone="R5")
    assert type(error) is kind
    assert words in str(error)
    assert error.next_step


def test_a_missing_server_is_named_and_none_is_started() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(HostError, match=f"no adb server at 127.0.0.1:{port}") as caught:
            Adb("127.0.0.1", port).devices()
        assert caught.value.next_step is not None
        assert f"adb -P {port} start-server" in caught.value.next_step


def test_something_else_on_the_port_is_no_adb_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(HostError, match="does not answer like an adb server"):
            Adb("127.0.0.1", server.getsockname()[1]).devices()
        thread.join()


def test_text_of_a_phone_is_made_one_printable_line() -> None:
    assert printable("a\r\n\tb\x1b[0m\x00 c\u202e") == "a b[0m c"


def test_long_text_is_cut_and_says_so() -> None:
    assert printable("x" * 300, 10) == "xxxxxxxxx…"


def test_of_long_output_the_end_is_shown() -> None:
    assert printable_lines(b"first\r\nlast\xff\n", 5) == "…last�"
