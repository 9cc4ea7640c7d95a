"""A phone whose storage refuses, played by the test on the far end of a real socket."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator

import pytest

from harness.device.adb import Adb
from harness.device.store import PhoneStore
from harness.errors import InfraError, PhoneStorageError


def packet(kind: int, data: bytes) -> bytes:
    return bytes([kind]) + len(data).to_bytes(4, "little") + data


class OneAnswer:
    """An adb server that answers every shell command alike."""

    def __init__(self, status: int, stderr: bytes) -> None:
        self._status, self._stderr = status, stderr
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as stream:
                while (length := stream.read(4)) and not (command := stream.read(int(length, 16))).startswith(b"shell"):
                    connection.sendall(b"OKAY")
                nonce = re.search(rb"snapgate-exit-([0-9a-f]+):", command)
                assert nonce is not None
                said = self._stderr + b"\nsnapgate-exit-" + nonce[1] + b":%d\n" % self._status
                connection.sendall(b"OKAY" + packet(2, said) + packet(3, bytes([self._status])))
                stream.read()


@pytest.fixture
def phone(request: pytest.FixtureRequest) -> Iterator[PhoneStore]:
    server = OneAnswer(*request.param)
    try:
        yield PhoneStore(Adb("127.0.0.1", server.port).device("S1"))
    finally:
        server.close()


@pytest.mark.parametrize(
    ("phone", "words"),
    [
        ((126, b"sh: /data/local/tmp/snapgate/.probe: Permission denied"), "mounted noexec"),
        ((1, b"mkdir: '/data/local/tmp/snapgate': Read-only file system"), "is read-only"),
        ((1, b"mkdir: '/data/local/tmp/snapgate': No space left on device"), "is full"),
        ((1, b"mkdir: '/data/local/tmp/snapgate': Permission denied"), "does not allow it"),
    ],
    indirect=["phone"],
)
def test_each_way_of_refusing_is_named(phone: PhoneStore, words: str) -> None:
    with pytest.raises(PhoneStorageError, match=words):
        phone.prepare()


@pytest.mark.parametrize("phone", [(2, b"df: something new")], indirect=True)
def test_another_failure_shows_the_phones_own_words(phone: PhoneStore) -> None:
    with pytest.raises(InfraError, match="exit code 2: df: something new"):
        phone.free_bytes()


@pytest.mark.parametrize("phone", [(0, b"")], indirect=True)
def test_free_storage_that_cannot_be_read_is_an_error_and_not_zero(phone: PhoneStore) -> None:
    with pytest.raises(InfraError, match="cannot read `df`"):
        phone.free_bytes()
