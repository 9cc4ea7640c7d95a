"""Every error SnapGate raises on purpose. The class answers one question: who has to act?

::

    SnapGateError
    ├── UserError              whoever typed the command: an option, a file or a spec is wrong
    │   ├── CheckpointError    the checkpoint is missing, damaged or of an unsupported architecture
    │   └── ArtifactError      the artifact is damaged, or made for another SoC, HTP arch or ABI
    │       └── NoReferenceError  it was prepared without the graphs that a comparison needs; all else can be measured
    ├── HostError              whoever keeps this host: a tool, library or permission is missing
    ├── ModelError             the model or compiler engineer: it does not compile, or fails on the phone
    │   ├── CompileError
    │   └── RunnerError        the runner ended with a structured error that the lab cannot have caused
    └── InfraError             the lab: phone, cable, storage, adb. Says nothing about the model
        ├── PhoneLostError     the phone went away or rebooted
        ├── TransferError      bytes did not arrive as sent
        ├── PhoneStorageError  the phone is full, read-only or noexec
        ├── DeadlineError      no end, or no progress, within the time allowed
        └── LeaseError         somebody else holds the phone
"""

from __future__ import annotations

from typing import ClassVar


class SnapGateError(Exception):
    """Base of all. The message always names the thing, what was found, what was expected and the next step."""

    exit_code: ClassVar[int] = 22

    def __init__(
        self,
        what: str,
        *,
        found: str | None = None,
        expected: str | None = None,
        next_step: str | None = None,
    ) -> None:
        self.what = what
        self.found = found
        self.expected = expected
        self.next_step = next_step
        super().__init__(what, found, expected, next_step)

    def __str__(self) -> str:
        """One line, also where a library's own words in it are several."""
        parts = [self.what]
        if self.found is not None:
            parts.append(f"found: {self.found}")
        if self.expected is not None:
            parts.append(f"expected: {self.expected}")
        if self.next_step is not None:
            parts.append(f"next step: {self.next_step}")
        return " ".join("; ".join(parts).split("\n"))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.found, self.expected, self.next_step, self.__dict__))


def _rebuild(
    cls: type[SnapGateError],
    what: str,
    found: str | None,
    expected: str | None,
    next_step: str | None,
    state: dict[str, object],
) -> SnapGateError:
    error = cls(what, found=found, expected=expected, next_step=next_step)
    error.__dict__.update(state)
    return error


class UserError(SnapGateError):
    exit_code = 20


class CheckpointError(UserError):
    pass


class ArtifactError(UserError):
    pass


class NoReferenceError(ArtifactError):
    pass


class HostError(SnapGateError):
    exit_code = 21


class ModelError(SnapGateError):
    exit_code = 22


class CompileError(ModelError):
    pass


class RunnerError(ModelError):
    """The runner reported a structured error. ``runner_exit_code`` is the one of ``record/schema/exit_codes.json``."""

    runner_exit_code: int | None = None


class InfraError(SnapGateError):
    """``transient``: the same action may well succeed if tried once more."""

    exit_code = 11
    transient: bool = False


class PhoneLostError(InfraError):
    transient = True


class TransferError(InfraError):
    transient = True


class PhoneStorageError(InfraError):
    pass


class DeadlineError(InfraError):
    pass


class LeaseError(InfraError):
    pass


class UnfitError(InfraError):
    """A condition is violated, and the policy is to refuse. The phone itself is not broken."""


def first_line(error: BaseException) -> str:
    """What another library's error says, on one line; its type where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
