"""Every fault of the virtual phone at every stage of a run, and what a record may say of it.

What is checked of a case is in ``judge_case``: nothing wrong passes, nothing of the lab's is the model's failure, and
the record names what was done and nothing else. ``phones_matrix`` carries a case out.
"""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from harness.device.adb import AdbDevice
from harness.device.store import ROOT
from harness.errors import InfraError, LeaseError
from harness.record.run import Conditions, RunRecord
from harness.record.vocabulary import Status
from harness.virtual.lab import VirtualPhone

STAGES: Final = ("discover", "push", "start", "prefill", "decode", "pull", "record")
LONGEST_S: Final = 8.0
"""Of any other command or silent transfer: so long a hung one holds up a case."""
SKELETON: Final = "libQnnHtpV75Skel.so"
_RUNNER: Final = "real-snapgate-runner"
NEVER: Final = "$^"
_AWAY: Final = r"(went away; .*|is gone; .*)"
_AT_ONCE: Final = (
    r"|no usable phone; found: (offline: adb has lost the connection|gone: |does not answer: .* went away)"
)
"""What is said of a phone that is not back when phones are looked for"""
_CUT: Final = _AWAY + "it had not rebooted" + _AT_ONCE
_CLAIMS: Final = {
    r"it had rebooted|rebooted during the run": ("reboot", "power cut"),
    r"unauthorized|does not trust": ("unauthorized", "unauthorized, then accepted"),
    r"recovery": ("recovery",),
    r"is full": ("no space",),
    r"noexec|not executable": ("noexec",),
    r"lack of memory": ("runner killed for memory", "another app killed for memory"),
    r"LIBRARY_LOAD": ("library gone",),
    r"DEVICE_FAILED": ("skeleton gone",),
    r"damaged": ("corrupted push", "corrupted pull", "garbage in a shell"),
    r"cut short": ("truncated push", "truncated pull"),
    r"not finished in time": ("hung shell",),
    r"no sign of life|moved no data|did not take a request": ("stalled link", "hung shell"),
}
"""Words that may only be said of these faults: who reads them would look for something else"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """``strike`` does it; ``cause``: what is said of a run that is not whole, or not in the first try, NEVER: it is.

    ``shown``: what the conditions of a run say that begins with it.
    """

    name: str
    strike: Callable[[VirtualPhone, Striker], None]
    cause: str
    shown: Callable[[Conditions], bool] = lambda _: True


@dataclass(slots=True)
class Striker:
    """What a fault needs besides the phone."""

    device: AdbDevice
    rng: random.Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    number: int
    faults: tuple[Fault, ...]
    stage: str
    delay_s: float = 0.0
    """After the stage was reached"""

    @property
    def name(self) -> str:
        return "+".join(fault.name for fault in self.faults)

    def __str__(self) -> str:
        return f"{self.stage}-{self.name}".replace(" ", "_")


@dataclass(slots=True, kw_only=True)
class Outcome:
    case: Case
    ended: str
    """``whole``, ``INFRA``, ``FAIL``, or ``refused`` before a run began"""
    said: str
    attempts: int
    seconds: float
    wrong: list[str] = field(default_factory=list)


def _remove(name: str) -> Callable[[VirtualPhone, Striker], None]:
    def strike(_: VirtualPhone, at: Striker) -> None:
        with contextlib.suppress(InfraError):
            at.device.script('rm -f "$1"/store/*/"$2"', ROOT, name, what="remove a library")

    return strike


def _kill_runner(phone: VirtualPhone, _: Striker) -> None:
    with contextlib.suppress(Exception):
        phone.kill_for_memory(_RUNNER)


def _trust_later(phone: VirtualPhone, _: Striker) -> None:
    phone.set_trust(False)
    threading.Timer(2.0, lambda: phone.set_trust(True)).start()


def _hot(phone: VirtualPhone, _: Striker) -> None:
    phone.set_temperature("skin-msm-therm", 52.0)


def _throttled(found: Conditions) -> bool:
    """52 °C of the skin is status 4, severe, of the profile's thresholds; it caps the clocks too."""
    return any(text.startswith("thermal status ") for text in found.violations) and bool(found.clock_limits)


def _reboot(phone: VirtualPhone, _: Striker) -> None:
    threading.Thread(target=phone.reboot, daemon=True).start()


def _kill(phone: VirtualPhone, _: Striker) -> None:
    phone.kill()


_ANY_PULL: Final = "*/runs/*"
FAULTS: Final[tuple[Fault, ...]] = (
    Fault(name="disconnect", strike=lambda p, _: p.disconnect(), cause=_CUT),
    Fault(name="offline", strike=lambda p, _: p.go_offline(2.0), cause=_CUT),
    Fault(name="reboot", strike=_reboot, cause=_AWAY + "it had rebooted|rebooted during the run" + _AT_ONCE),
    Fault(name="power cut", strike=_kill, cause=_AWAY + r"not back after .*: state '(offline|gone)'" + _AT_ONCE),
    Fault(name="frozen link", strike=lambda p, _: p.freeze(3.0), cause=NEVER),
    Fault(
        name="stalled link",
        strike=lambda p, _: p.freeze(LONGEST_S + 3),
        cause=r"no sign of life for 8 s|moved no data|did not take a request within",
    ),
    Fault(name="slow link", strike=lambda p, _: p.slow_down(400_000), cause=NEVER),
    Fault(name="garbage bytes", strike=lambda p, a: p.send_garbage(200, seed=a.rng.randrange(99)), cause=_CUT),
    Fault(
        name="unauthorized, then accepted",
        strike=_trust_later,
        cause=_AWAY + ", unauthorized.*: it had not rebooted|no usable phone; found: unauthorized",
    ),
    Fault(
        name="unauthorized",
        strike=lambda p, _: p.set_trust(False),
        cause=_AWAY + "not back after .*: state 'unauthorized'|no usable phone; found: unauthorized",
    ),
    Fault(
        name="recovery",
        strike=lambda p, _: p.set_mode("recovery"),
        cause=_AWAY + "not back after .*: state 'recovery'|no usable phone; found: recovery",
    ),
    Fault(name="hung shell", strike=lambda p, _: p.hang_shell(), cause="not finished in time|no sign of life for 8 s"),
    Fault(
        name="exit code lost",
        strike=lambda p, _: p.spoil_shell("no_exit"),
        cause="closed before the exit status|the exit status was lost",
    ),
    Fault(name="CRLF", strike=lambda p, _: p.spoil_shell("crlf", times=500), cause=NEVER),
    Fault(name="garbage in a shell", strike=lambda p, _: p.spoil_shell("garbage_shell"), cause="damaged"),
    Fault(
        name="disconnect mid-push",
        strike=lambda p, _: p.fail_push_by_disconnect(20),
        cause=r"push \S+: phone \S+ went away.*(: it had not rebooted|the connection closed in the middle of a file)",
    ),
    Fault(name="corrupted push", strike=lambda p, _: p.corrupt_push(), cause=r"push \S+ to phone \S+: damaged on the"),
    Fault(
        name="truncated push",
        strike=lambda p, _: p.truncate_push(10),
        cause=r"push \S+ to phone \S+: cut short on the way; found: 10 of \d+ bytes",
    ),
    Fault(
        name="no space",
        strike=lambda p, _: p.fail_push_by_full_storage(),
        cause=r"push \S+: the storage of phone \S+ is full",
    ),
    Fault(
        name="disconnect mid-pull",
        strike=lambda p, _: p.fail_pull("disconnect", 100, pattern=_ANY_PULL),
        cause=r"pull \S+: phone \S+ went away.*: it had not rebooted",
    ),
    Fault(
        name="truncated pull",
        strike=lambda p, _: p.fail_pull("truncate", 100, pattern=_ANY_PULL),
        cause=r"pull \S+ from phone \S+: cut short on the way; found: 100 of \d+ bytes",
    ),
    Fault(
        name="corrupted pull",
        strike=lambda p, _: p.fail_pull("corrupt", 100, pattern=_ANY_PULL),
        cause=r"pull \S+ from phone \S+: damaged on the way",
    ),
    Fault(name="noexec", strike=lambda p, _: p.set_noexec(True), cause="is mounted noexec|not executable: "),
    Fault(name="clock jumps ahead", strike=lambda p, _: p.jump_clock(86_400), cause=NEVER),
    Fault(name="clock jumps back", strike=lambda p, _: p.jump_clock(-86_400), cause=NEVER),
    Fault(name="hot, throttled", strike=_hot, cause=NEVER, shown=_throttled),
    Fault(
        name="low battery",
        strike=lambda p, _: p.set_battery(percent=3, charging=False),
        cause=NEVER,
        shown=lambda c: "battery 3 % < 20 %" in c.violations,
    ),
    Fault(
        name="charger flips",
        strike=lambda p, _: p.set_battery(charging=False),
        cause=NEVER,
        shown=lambda c: c.charging is False and "charging" not in c.violations,
    ),
    Fault(
        name="runner killed for memory", strike=_kill_runner, cause="the phone killed the runner for lack of memory: "
    ),
    Fault(
        name="another app killed for memory",
        strike=lambda p, _: p.kill_for_memory("com.other.app", kill=False),
        cause=NEVER,
    ),
    Fault(
        name="library gone",
        strike=_remove("libQnnHtp.so"),
        cause="libs/libQnnHtp.so is gone from the phone; LIBRARY_LOAD: a QNN library is missing",
    ),
    Fault(
        name="skeleton gone",
        strike=_remove(SKELETON),
        cause=f"libs/{SKELETON} is gone from the phone; DEVICE_FAILED: the NPU session did not open",
    ),
    Fault(name="log wraps", strike=lambda p, _: p.wrap_log(200), cause=NEVER),
)


def judge_case(
    case: Case,
    record: RunRecord | None,
    refusal: InfraError | None,
    essence: tuple[Any, ...] | None,
    reference: tuple[Any, ...] | None,
) -> list[str]:
    """What is wrong with the outcome of a case; nothing, if SnapGate did as it says."""
    if record is None:
        if isinstance(refusal, LeaseError):
            return [f"a lock was left: {refusal}"]
        return _misnamed(case, str(refusal))
    wrong = [
        f"{fault.name} is not in the conditions: {record.conditions.violations}"
        for fault in case.faults
        if len(case.faults) == 1 and case.stage == "discover" and not fault.shown(record.conditions)
    ]
    if record.error is None:
        wrong += [] if essence == reference else ["false PASS: another output than the clean run's"]
        told = record.retried_because
        return wrong + (_misnamed(case, told) if told is not None else [])
    if record.error.status is Status.FAIL:
        return [*wrong, f"a fault of the lab is the model's failure: {record.error.message}"]
    return wrong + _misnamed(case, record.error.message)


def _misnamed(case: Case, said: str) -> list[str]:
    """Why ``said`` is not the cause of a case."""
    if not any(re.search(fault.cause, said, re.IGNORECASE | re.DOTALL) for fault in case.faults):
        return [f"cause not named: {said}"]
    struck = {fault.name for fault in case.faults}
    return [
        f"cause not named: '{found[0]}' is said of none of its faults: {said}"
        for words, faults in _CLAIMS.items()
        if (found := re.search(words, said, re.IGNORECASE)) is not None and struck.isdisjoint(faults)
    ]


def all_cases() -> tuple[Case, ...]:
    pairs = [(fault, stage) for fault in FAULTS for stage in STAGES]
    return tuple(Case(number=n, faults=(fault,), stage=stage) for n, (fault, stage) in enumerate(pairs))


def sampled_cases(n: int, seed: int) -> tuple[Case, ...]:
    """``n`` of one fault, in the order of ``all_cases``."""
    cases = random.Random(seed).sample(all_cases(), n)  # noqa: S311
    return tuple(sorted(cases, key=lambda case: case.number))


def random_cases(n: int, seed: int) -> tuple[Case, ...]:
    """Two faults at once, a random moment after a random stage."""
    rng = random.Random(seed)  # noqa: S311
    return tuple(
        Case(
            number=1000 + k,
            faults=tuple(rng.sample(FAULTS, 2)),
            stage=rng.choice(STAGES),
            delay_s=round(rng.uniform(0, 0.8), 3),
        )
        for k in range(n)
    )


SAMPLE_SEED: Final = 5


def sample() -> tuple[Case, ...]:
    """The 40 cases of ``make test-all``."""
    return (*sampled_cases(34, SAMPLE_SEED), *random_cases(6, SAMPLE_SEED))
