"""The adb server and one transport of it, over adbutils.

adbutils is used for connections and framing. Its conveniences are avoided where they lose information: ``shell2``
falls back to a protocol without stderr, ``sync.push`` drops the daemon's message and leaves a half file under the
final name, ``stat`` reads too few bytes, and a connection to a missing server starts one. A server is never started,
killed or restarted from here: it may belong to somebody else.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from adbutils import AdbError
from adbutils.errors import AdbTimeout

from harness.device import sync
from harness.device.arrival import DESCRIBE, FINISH, Arrived, parse_description, parse_finish, wrong_pull, wrong_push
from harness.device.faults import command_fault, fault
from harness.device.progress import Progress
from harness.device.server import Attached, ServerConnection, parse_devices
from harness.device.shell import LineSplitter, Patience, ShellResult, converse, new_nonce, quote, with_sentinel
from harness.device.text import printable
from harness.errors import DeadlineError, HostError, InfraError, PhoneLostError
from harness.record.artifact import sha256_of

_STUCK_S: Final = 5.0
_COMMAND_LIMIT: Final = 32 * 1024
_ANSWER_S: Final = 10.0
"""Within this the phone has to take a request; what it then does has limits of its own."""
_TRANSFER_STALL_S: Final = 30.0
_SLOWEST_BYTES_PER_S: Final = 512 * 1024
_SLOWEST_HASH_BYTES_PER_S: Final = 8 * 1024 * 1024


def _no_progress(_: str) -> None:
    pass


class _SilentError(Exception):
    """A request was not taken in time."""


@dataclass(frozen=True, slots=True)
class Adb:
    """An adb server. Raises ``HostError`` where there is none."""

    host: str = "127.0.0.1"
    port: int = 5037

    def connect(self, timeout_s: float = _ANSWER_S) -> Any:
        """A fresh connection to the server, which the caller closes."""
        try:
            connection = ServerConnection(self.host, self.port)
        except (AdbError, OSError) as exc:
            raise HostError(
                f"no adb server at {self.host}:{self.port}",
                found=printable(str(exc)),
                expected="a running adb server",
                next_step=f"start one with `adb -P {self.port} start-server`, or name another host and port",
            ) from exc
        connection.conn.settimeout(timeout_s)
        return connection

    def ask(self, request: str, timeout_s: float = _ANSWER_S) -> str:
        """A ``host:`` request that is answered with one block of text. Raises adbutils' ``AdbError`` when refused."""
        connection = self.connect(timeout_s)
        try:
            connection.send_command(request)
            connection.check_okay()
            text: str = connection.read_string_block()
        finally:
            connection.close()
        return text

    def devices(self) -> tuple[Attached, ...]:
        try:
            return parse_devices(self.ask("host:devices-l"))
        except (AdbError, OSError, ValueError) as exc:
            raise HostError(
                f"{self.host}:{self.port} does not answer like an adb server",
                found=printable(str(exc)),
                expected="an answer to host:devices-l",
                next_step="name the port of an adb server (default 5037)",
            ) from exc

    def device(self, transport: str) -> AdbDevice:
        return AdbDevice(self, transport)


@dataclass(frozen=True, slots=True)
class AdbDevice:
    """One transport. Every call has its own connection and its own time limit."""

    adb: Adb
    transport: str

    def state(self) -> str:
        """``device``, or why not: ``offline``, ``unauthorized``, ``gone``, ..."""
        try:
            return printable(self.adb.ask(f"host-serial:{self.transport}:get-state"), 40)
        except (AdbError, OSError, ValueError) as exc:
            words = str(exc).lower()
            return next((state for state in ("offline", "unauthorized", "authorizing") if state in words), "gone")

    def wait(self, timeout_s: float, *, seen: Callable[[str], None] = _no_progress) -> bool:
        """Whether the phone is in state ``device`` before ``timeout_s`` is over. A stuck transport is reconnected.

        ``seen`` is told each other state.
        """
        deadline = time.monotonic() + timeout_s
        next_help = time.monotonic() + _STUCK_S
        while (state := self.state()) != "device":
            seen(state)
            now = time.monotonic()
            if now >= deadline:
                return False
            if now >= next_help:
                next_help = now + _STUCK_S
                self._reconnect()
            time.sleep(0.1)
        return True

    def _reconnect(self) -> None:
        """Have the server drop a transport that hangs in ``offline`` and connect to it anew. Only this one."""
        with contextlib.suppress(AdbError, OSError):
            self.adb.ask(f"host-serial:{self.transport}:reconnect")
        if ":" in self.transport:
            # The server forgets a network transport that it drops.
            with contextlib.suppress(AdbError, OSError):
                self.adb.ask(f"host:connect:{self.transport}")

    def features(self) -> frozenset[str]:
        with self._mapped("read features"):
            return frozenset(self.adb.ask(f"host-serial:{self.transport}:features").split(","))

    def run(
        self,
        argv: Sequence[str | PurePosixPath],
        *,
        timeout_s: float = 30.0,
        stdin: bytes | None = None,
        what: str | None = None,
    ) -> ShellResult:
        """Run a program and wait for it. A non-zero exit code is a result, not an error."""
        return self._converse(argv, Patience.of(timeout_s), stdin=stdin, what=what)

    def script(
        self, text: str, *arguments: str | PurePosixPath, timeout_s: float = 30.0, stdin: bytes | None = None, what: str
    ) -> ShellResult:
        """Run a fixed shell text; ``arguments`` reach it as ``$1``, ``$2``, ..., never as part of the text."""
        return self.run(["sh", "-c", text, "snapgate", *arguments], timeout_s=timeout_s, stdin=stdin, what=what)

    def stream(
        self,
        argv: Sequence[str | PurePosixPath],
        *,
        on_line: Callable[[str], None],
        deadline_s: float,
        stall_s: float,
        on_error_line: Callable[[str], None] | None = None,
        what: str | None = None,
    ) -> ShellResult:
        """Run a program and hand on each line as it comes; no output on either stream for ``stall_s`` is an error.

        A program still running when this raises goes on running on the phone: stop it by its pid.
        """
        lines = LineSplitter(on_line)
        errors = LineSplitter(on_error_line or _no_progress)
        patience = Patience.of(deadline_s, stall_s)
        try:
            return self._converse(argv, patience, what=what, on_stdout=lines.add, on_stderr=errors.add)
        finally:
            lines.finish()
            errors.finish()

    def push(
        self,
        local: Path,
        remote: PurePosixPath,
        *,
        mode: int = 0o644,
        sha256: str | None = None,
        progress: Callable[[str], None] = _no_progress,
    ) -> str:
        """Put ``local`` at ``remote``, all or nothing: temporary name, hashed on the phone, renamed. Gives its sha256.

        ``sha256``: what the content must be, on this host and on the phone. Raises ``TransferError`` when either
        differs, ``PhoneStorageError`` when the phone is full or does not take files there.
        """
        what = f"push {local.name}"
        size = local.stat().st_size
        expected = sha256 if sha256 is not None else sha256_of(local)
        temporary = remote.with_name(f".{remote.name[:100]}.{new_nonce()}.part")
        try:
            self.send(local, temporary, what=what, progress=progress)
            found = self.finish(temporary, remote, mode=mode, size=size, sha256=expected, what=what)
            if found.sha256 != expected:
                raise wrong_push(local, found, expected=expected, what=what, phone=self.transport)
        except BaseException:
            self._discard(temporary)
            raise
        return expected

    def send(
        self,
        local: Path,
        remote: PurePosixPath,
        *,
        what: str,
        spans: Sequence[tuple[int, int]] | None = None,
        progress: Callable[[str], None] = _no_progress,
    ) -> int:
        """Bytes of ``local`` (all, or ``spans`` of offset and length, joined) to a file that nobody uses yet."""
        size = local.stat().st_size if spans is None else sum(n for _, n in spans)
        patience = Patience.of(60 + size / _SLOWEST_BYTES_PER_S, _TRANSFER_STALL_S)
        reporter = Progress(what, size, progress)
        with self._mapped(what), self._service("sync:") as connection:
            return sync.send(
                connection, local, remote, mode=0o644, patience=patience, on_bytes=reporter.add, spans=spans
            )

    def finish(
        self, temporary: PurePosixPath, remote: PurePosixPath, *, mode: int, size: int, sha256: str, what: str
    ) -> Arrived:
        """Hash a pushed file on the phone; only if it is ``sha256`` it gets its name."""
        timeout_s = 90 + size / _SLOWEST_HASH_BYTES_PER_S
        result = self.script(FINISH, temporary, sha256, f"{mode:o}", remote, timeout_s=timeout_s, what=what)
        if result.exit_code != 0:
            raise command_fault(result, what=what, phone=self.transport)
        return parse_finish(result.text)

    def pull(
        self, remote: PurePosixPath, local: Path, *, timeout_s: float = 600.0, max_bytes: int = sync.PULL_LIMIT
    ) -> str:
        """Fetch a file, all or nothing: temporary name, size and sha256 compared with the phone's own, renamed.

        A phone that sends over ``max_bytes`` is cut off, with ``TransferError``.
        """
        what = f"pull {remote.name}"
        listed = self.script(DESCRIBE, remote, timeout_s=min(timeout_s, 120.0), what=what)
        if listed.exit_code != 0:
            raise command_fault(listed, what=what, phone=self.transport)
        there = parse_description(listed.text, what=what, phone=self.transport)
        temporary = local.with_name(f".{local.name}.{new_nonce()}.part")
        local.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as stream, self._mapped(what), self._service("sync:") as connection:
                patience = Patience.of(timeout_s, _TRANSFER_STALL_S)
                n_bytes, digest = sync.receive(connection, remote, stream, patience=patience, max_bytes=max_bytes)
            here = Arrived(sha256=digest, n_bytes=n_bytes)
            if here.sha256 != there.sha256:
                raise wrong_pull(here, there, what=what, phone=self.transport)
            temporary.replace(local)
        finally:
            temporary.unlink(missing_ok=True)
        return here.sha256

    def open_stream(self, argv: Sequence[str | PurePosixPath], *, nonce: str) -> Any:
        """A connection on which ``argv`` runs, for a reader in a thread of its own (``shell.converse``)."""
        with self._mapped(f"start {printable(str(argv[0]), 80)}"):
            return self._open(f"shell,v2:{with_sentinel(quote(argv), nonce)}")

    def _converse(
        self,
        argv: Sequence[str | PurePosixPath],
        patience: Patience,
        *,
        stdin: bytes | None = None,
        what: str | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> ShellResult:
        words = tuple(str(word) for word in argv)
        what = what if what is not None else f"run {printable(words[0], 80)}"
        nonce = new_nonce()
        command = with_sentinel(quote(words), nonce)
        if len(command) > _COMMAND_LIMIT:
            raise ValueError(
                f"{what}: a command line of {len(command)} bytes; at most {_COMMAND_LIMIT} reach every phone"
            )
        with self._mapped(what), self._service(f"shell,v2:{command}") as connection:
            return converse(
                connection,
                argv=words,
                nonce=nonce,
                stdin=stdin,
                patience=patience,
                what=f"{what} on phone {self.transport}",
                on_stdout=on_stdout,
                on_stderr=on_stderr,
            )

    def _open(self, service: str) -> Any:
        connection = self.adb.connect(_ANSWER_S)
        try:
            connection.send_command(f"host:transport:{self.transport}")
            connection.check_okay()
            connection.send_command(service)
            connection.check_okay()
        except BaseException as exc:
            connection.close()
            if isinstance(exc, (TimeoutError, AdbTimeout)):
                raise _SilentError from exc
            raise
        return connection

    @contextlib.contextmanager
    def _service(self, service: str) -> Iterator[Any]:
        connection = self._open(service)
        try:
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _mapped(self, what: str) -> Iterator[None]:
        """adb's and the socket's errors as ours; whether the phone is still there is asked of the server."""
        try:
            yield
        except sync.SyncRefusedError as exc:
            raise fault(str(exc), what=what, phone=self.transport) from exc
        except _SilentError as exc:
            raise DeadlineError(
                f"{what}: phone {self.transport} did not take a request within {_ANSWER_S:g} s",
                found="silent",
                next_step="check cable and hub; replug the phone, or reboot it if it stays silent",
            ) from exc
        except (TimeoutError, AdbTimeout) as exc:
            raise DeadlineError(
                f"{what}: phone {self.transport} moved no data for {_TRANSFER_STALL_S:g} s",
                found="stalled",
                next_step="check cable and hub; replug the phone if every transfer stalls",
            ) from exc
        except (AdbError, EOFError, OSError) as exc:
            raise self._connection_fault(str(exc), what) from exc

    def _connection_fault(self, message: str, what: str) -> InfraError:
        state = self._settled_state()
        if state != "device" and "unauthorized" not in message:
            return PhoneLostError(
                f"{what}: phone {self.transport} went away",
                found=printable(f"state '{state}', {message}"),
                expected="state 'device'",
                next_step="check cable, power and `adb devices -l`; see whether the phone rebooted",
            )
        return fault(message, what=what, phone=self.transport)

    def _settled_state(self) -> str:
        """The state after a broken connection; the server may need a moment to notice that the phone is gone."""
        state = "gone"
        for _ in range(4):
            try:
                state = self.state()
            except HostError:
                return "adb server gone"
            if state != "device":
                return state
            time.sleep(0.1)
        return state

    def _discard(self, temporary: PurePosixPath) -> None:
        """Remove a half file if the phone can still be reached; the store clears leftovers at the next lease."""
        with contextlib.suppress(InfraError, HostError):
            self.run(["rm", "-f", temporary], timeout_s=10)
