"""Which phones are not used again, and that the first cause stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import InfraError
from harness.plugin import leasing
from harness.pool.quarantine import Quarantine, cause_of
from harness.record.run import RunError
from harness.record.vocabulary import Status


def record(kind: str, status: Status = Status.INFRA, attempts: int = 1) -> Any:
    error = RunError(status=status, kind=kind, message="it broke")
    return SimpleNamespace(run_id="r1", attempts=attempts, error=error)


def test_the_first_cause_stays_whoever_comes_second(tmp_path: Path) -> None:
    first, second = Quarantine(tmp_path, "s1"), Quarantine(tmp_path, "s1")
    assert first.add("P/1", "storage") == "storage"
    assert second.add("P/1", "cable") == "storage"
    assert second.cause("P/1") == "storage"


def test_many_processes_agree_on_one_cause(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as workers:
        causes = set(workers.map(lambda n: Quarantine(tmp_path, "s1").add("P1", f"cause {n}"), range(40)))
    assert causes == {Quarantine(tmp_path, "s1").cause("P1")}


def test_another_run_and_another_phone_are_free(tmp_path: Path) -> None:
    Quarantine(tmp_path, "s1").add("P1", "storage")
    assert Quarantine(tmp_path, "s2").cause("P1") is None
    assert Quarantine(tmp_path, "s1").cause("P2") is None


@pytest.mark.parametrize("kind", ["PhoneStorageError", "DeadlineError", "InfraError", "PhoneLostError"])
def test_a_phone_whose_fault_stayed_is_quarantined(kind: str) -> None:
    assert cause_of(record(kind, attempts=2)) == f"{kind} in run r1, in 2 tries: it broke"


def test_trouble_that_is_not_the_phones_quarantines_nobody() -> None:
    assert cause_of(record("HostError")) is None
    assert cause_of(record("LeaseError")) is None
    assert cause_of(record("UnfitError")) is None
    assert cause_of(record("KeyboardInterrupt")) is None
    assert cause_of(record("RunnerError", Status.FAIL)) is None
    assert cause_of(replace_error(None)) is None


def replace_error(error: RunError | None) -> Any:
    return SimpleNamespace(run_id="r1", attempts=1, error=error)


def test_a_quarantined_phone_is_passed_over_and_named_when_no_other_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def acquire(facts: Any, **_: object) -> Any:
        taken.append(facts.serial)
        return SimpleNamespace(release=lambda: None)

    monkeypatch.setattr(leasing, "acquire", acquire)
    phones = SimpleNamespace(lease_dir=str(tmp_path), adb_host="h", adb_port=1)
    share: Any = SimpleNamespace(session_id="s1", phones=phones)
    bad, good = SimpleNamespace(serial="BAD"), SimpleNamespace(serial="GOOD")
    leasing.quarantine_of(share).add("BAD", "PhoneStorageError in run r1: full")
    both: Any = (bad, good)
    with leasing.hold_one(both, share, worker="main", say=lambda _: None):
        assert taken == ["GOOD"]
    only: Any = (bad,)
    with (
        pytest.raises(InfraError, match="quarantined for the rest of this run; found: PhoneStorageError in run r1"),
        leasing.hold_one(only, share, worker="main", say=lambda _: None),
    ):
        pass
