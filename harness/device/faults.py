"""What adb and a phone say when something goes wrong, and which typed error that is.

The texts are those of adb's client, server and daemon and of the phone's C library; anything not listed here is a
transfer fault with the text shown as it came.
"""

from __future__ import annotations

from harness.device.shell import ShellResult, quote
from harness.device.text import printable
from harness.errors import InfraError, PhoneLostError, PhoneStorageError, TransferError

_GONE = ("device offline", "not found", "no devices", "device still", "device disconnected", "connect failed")


def fault(message: str, *, what: str, phone: str) -> InfraError:
    """The error for ``message``, which adb or a command on the phone gave while doing ``what``."""
    shown = printable(message) or "the connection closed without a word"
    text = message.lower()
    storage = storage_fault(message, what=what, phone=phone)
    if storage is not None:
        return storage
    if "unauthorized" in text or "still authorizing" in text:
        return InfraError(
            f"{what}: phone {phone} does not trust this host",
            found=shown,
            expected="USB debugging allowed for this host's key",
            next_step="unlock the phone and accept the prompt; if there is none, toggle USB debugging",
        )
    if any(words in text for words in _GONE):
        return PhoneLostError(
            f"{what}: phone {phone} is gone",
            found=shown,
            expected="state 'device'",
            next_step="check cable, power and `adb devices -l`",
        )
    return TransferError(
        f"{what}: the connection to phone {phone} failed", found=shown, next_step="check cable and hub, then try again"
    )


def storage_fault(message: str, *, what: str, phone: str) -> PhoneStorageError | None:
    """Full, read-only or not permitted, when ``message`` says so."""
    text = message.lower()
    shown = printable(message)
    if "no space left" in text or "enospc" in text or "quota exceeded" in text:
        return PhoneStorageError(
            f"{what}: the storage of phone {phone} is full",
            found=shown,
            next_step="free space below /data/local/tmp (`df /data`), then try again",
        )
    if "read-only file system" in text:
        return PhoneStorageError(
            f"{what}: the storage of phone {phone} is read-only",
            found=shown,
            expected="/data/local/tmp writable by adb's shell",
            next_step="reboot the phone; a storage that stays read-only is damaged",
        )
    if "secure_mkdirs failed" in text or "permission denied" in text or "operation not permitted" in text:
        return PhoneStorageError(
            f"{what}: phone {phone} does not allow it",
            found=shown,
            expected="/data/local/tmp writable by adb's shell",
            next_step="look at `adb shell ls -lZd /data/local/tmp`",
        )
    return None


def command_fault(result: ShellResult, *, what: str, phone: str) -> InfraError:
    """The error for a housekeeping command that failed on the phone."""
    storage = storage_fault(result.said(), what=what, phone=phone)
    if storage is not None:
        return storage
    return InfraError(
        f"{what}: a command failed on phone {phone}",
        found=result.said(),
        expected="exit code 0",
        next_step="run it by hand with `adb shell`: " + printable(quote(result.argv), 200),
    )
