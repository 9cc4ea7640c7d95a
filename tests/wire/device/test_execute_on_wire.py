"""Whole runs: the real runner and the real QNN libraries on a virtual phone, and what becomes of a run that breaks."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compiler.prepare import prepare
from harness.device.adb import AdbDevice
from harness.device.phone import LeasedPhone
from harness.device.store import ROOT
from harness.errors import ArtifactError, PhoneLostError, TransferError, UserError
from harness.journal import JournalWriter, read_journal
from harness.pool.local import acquire
from harness.record.artifact import Artifact, sha256_of
from harness.record.job import Logits, Prompt
from harness.record.run import RunRecord
from harness.record.vocabulary import Source, Status
from harness.run.attempt import refuse_reboot
from harness.run.execute import execute
from harness.run.workload import Workload
from harness.soc import Precision, find_soc
from harness.virtual.lab import VirtualLab, VirtualPhone

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("qnn"),
    pytest.mark.lane("runner"),
    pytest.mark.xdist_group("wire-execute"),
]

REPOSITORY = Path(__file__).resolve().parents[3]
PROMPT = (5, 17, 200, 31, 9, 12, 400, 77)
LONG = Prompt(prompt_id="long", mode="generate", tokens=PROMPT, n_gen=100, ignore_eos=True, repetitions=5)
LONG_RUN = Workload(name="long", prompts=(LONG,), performance_mode="default", deadline_s=240, stall_s=120)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The bundled model in fp16 for gen3, without held-out text: nothing is measured on this host.

    Workers of one test run share it: ``prepare`` locks its folder and takes an artifact that is there already.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    checkpoint = shared / "wire-execute" / "tiny-llama"
    checkpoint.mkdir(parents=True, exist_ok=True)
    for file in (REPOSITORY / "models" / "tiny-llama").iterdir():
        if file.name != "heldout.txt":
            with contextlib.suppress(FileExistsError):
                (checkpoint / file.name).symlink_to(file)
    return prepare(
        checkpoint,
        soc=find_soc("gen3"),
        precision=Precision.FP16,
        context=128,
        prefill=32,
        out=shared / "wire-execute" / "artifacts",
    )


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def run(phone: LeasedPhone, artifact: Artifact, results: Path) -> Iterator[Callable[..., RunRecord]]:
    journal = JournalWriter(results / "journal" / "s1-main.jsonl")

    def go(workload: Workload, reconnect_s: float = 20.0) -> RunRecord:
        return execute(
            phone,
            artifact,
            workload,
            session_id="s1",
            results_dir=results,
            journal=journal,
            reconnect_s=reconnect_s,
        )

    yield go
    journal.close()


def when_running(device: AdbDevice, act: Callable[[], object]) -> threading.Thread:
    """Do ``act`` two seconds after the runner has written its first record on the phone."""

    def wait() -> None:
        for _ in range(600):
            listed = device.script('ls -s "$1"/*/records.jsonl 2>/dev/null', ROOT / "runs", what="look")
            if listed.text.strip() and not listed.text.startswith("0 "):
                break
            time.sleep(0.1)
        time.sleep(2)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def processes(device: AdbDevice) -> str:
    """Ours that are left on the phone; a process that was told to end has 10 s to do so."""
    left = ""
    for _ in range(40):
        left = device.script(
            'for p in /proc/[0-9]*/cmdline; do grep -aq "snapgate-[rs]unner\\|snapgate-[s]ensors" "$p" '
            '&& echo "$p"; done',
            what="look",
        ).text
        if left == "":
            break
        time.sleep(0.25)
    return left


def journalled(results: Path) -> tuple[RunRecord, ...]:
    return read_journal(results / "journal").runs


def test_a_run_brings_back_generations_logits_and_sensors(
    run: Callable[..., RunRecord], results: Path, device: AdbDevice, artifact: Artifact, phone: LeasedPhone
) -> None:
    workload = Workload(
        name="short",
        performance_mode="default",
        prompts=(
            Prompt(
                prompt_id="a", mode="generate", tokens=PROMPT, n_gen=4, ignore_eos=True, logits=Logits.ALL, warmups=1
            ),
            Prompt(prompt_id="b", mode="generate", tokens=PROMPT[:3], n_gen=2, ignore_eos=True),
            Prompt(prompt_id="c", mode="score", tokens=PROMPT, n_gen=0),
        ),
    )
    record = run(workload)
    assert record.error is None
    assert (record.attempts, record.retried_because) == (1, None)
    assert record.source is Source.VIRTUAL
    assert record.prompt_sensitivity_expected
    assert [(g.prompt_id, g.warmup, len(g.token_ids), len(g.nll)) for g in record.log.generations] == [
        ("a", True, 4, 0),
        ("a", False, 4, 0),
        ("b", False, 2, 0),
        ("c", False, 0, 7),
    ]
    logits = record.log.generations[1].logits
    assert logits is not None
    assert (logits.n_rows, logits.n_columns) == (8 + 4 - 1, 1024)
    folder = results / "runs" / record.run_id
    assert set(record.files_sha256) == {
        f"runs/{record.run_id}/{name}"
        for name in ("job.json", "records.jsonl", "logits.bin", "stderr.txt", "logcat.txt", "sensors.txt")
    }
    assert all(sha256_of(results / name) == sha for name, sha in record.files_sha256.items())
    assert record.job_sha256 == sha256_of(folder / "job.json")
    assert {series.domain for series in record.sensors} >= {"cpu", "npu", "battery"}
    start, end = record.log.start, record.log.end
    assert start is not None
    assert end is not None
    stamps = next(series.monotonic_ns for series in record.sensors if series.values)
    assert start.clock.monotonic_ns - 5e9 < stamps[0] < end.clock.monotonic_ns + 5e9
    assert record.host is not None
    assert record.conditions.battery_percent is not None
    assert (record.epcontext_nodes, record.cpu_nodes) == ((1, 1), (0, 0))
    assert record.libraries_sha256.keys() >= {"libQnnHtp.so", "libQnnSystem.so"}
    assert record.bytes_pushed > sum(context.n_bytes for context in artifact.manifest.contexts)
    assert journalled(results) == (record,)
    assert device.run(["ls", ROOT / "runs"]).text == ""
    assert processes(device) == ""
    again = run(replace(workload, prompts=workload.prompts[1:2]))
    assert (again.error, again.bytes_pushed) == (None, 0)


def test_an_artifact_that_the_phone_does_not_load_is_refused_before_anything_is_pushed(
    phone: LeasedPhone, artifact: Artifact, results: Path, device: AdbDevice
) -> None:
    target = replace(artifact.manifest.target, part="SM8750", htp_arch=79)
    foreign = replace(artifact, manifest=replace(artifact.manifest, target=target))
    journal = JournalWriter(results / "journal" / "s1-main.jsonl")
    before = device.run(["find", ROOT, "-type", "f"]).text
    with pytest.raises(ArtifactError, match="does not fit phone") as caught:
        execute(phone, foreign, LONG_RUN, session_id="s1", results_dir=results, journal=journal)
    journal.close()
    assert caught.value.found == "an artifact for SM8750, HTP v79"
    assert caught.value.expected == "HTP v75 (SM8650)"
    recipe = replace(artifact.manifest.recipe, contexts="shared")
    shared = replace(artifact, manifest=replace(artifact.manifest, recipe=recipe))
    with pytest.raises(ArtifactError, match="does not fit phone") as caught:
        execute(phone, shared, LONG_RUN, session_id="s1", results_dir=results, journal=JournalWriter(journal.path))
    assert caught.value.found == "a binary whose graphs share their weights"
    assert device.run(["find", ROOT, "-type", "f"]).text == before
    assert not (results / "runs").exists()


def test_a_prompt_longer_than_the_context_is_refused(run: Callable[..., RunRecord], results: Path) -> None:
    with pytest.raises(UserError, match="longer than the context"):
        run(replace(LONG_RUN, prompts=(replace(LONG, tokens=(5,) * 129, n_gen=1),)))
    assert not (results / "runs").exists()


def test_a_phone_that_loses_power_in_mid_run_is_the_labs_fault_and_journalled(
    run: Callable[..., RunRecord], results: Path, device: AdbDevice, virtual: VirtualPhone
) -> None:
    killer = when_running(device, virtual.kill)
    try:
        record = run(LONG_RUN, reconnect_s=2.0)
    finally:
        killer.join()
        virtual.reboot()
    assert record.error is not None
    assert (record.error.status, record.error.kind) == (Status.INFRA, "PhoneLostError")
    assert record.attempts == 1
    assert record.log.start is not None
    assert record.log.end is None
    assert journalled(results) == (record,)


def test_a_reboot_in_mid_run_is_tried_once_more_and_the_record_says_why(
    run: Callable[..., RunRecord], results: Path, device: AdbDevice, virtual: VirtualPhone
) -> None:
    short = replace(LONG_RUN, prompts=(replace(LONG, repetitions=1, n_gen=60),))
    killer = when_running(device, virtual.reboot)
    record = run(short, reconnect_s=60.0)
    killer.join()
    assert record.error is None
    assert record.attempts == 2
    assert record.retried_because is not None
    assert record.retried_because.startswith("PhoneLostError: ")
    assert record.retried_because.endswith("it had rebooted")
    assert len(record.log.generations) == 1
    assert journalled(results) == (record,)


@pytest.mark.slow
def test_a_run_that_outlives_its_connection_is_ended_before_the_second_try(
    phone: LeasedPhone, artifact: Artifact, results: Path, device: AdbDevice, virtual: VirtualPhone
) -> None:
    journal = JournalWriter(results / "journal" / "s1-main.jsonl")
    still_there: list[str] = []

    def progress(text: str) -> None:
        if text.startswith("trying once more"):
            still_there.append(processes(device))

    cable = when_running(device, lambda: virtual.go_offline(3.0))
    short = replace(LONG_RUN, prompts=(replace(LONG, repetitions=2, n_gen=115),))
    record = execute(phone, artifact, short, session_id="s1", results_dir=results, journal=journal, progress=progress)
    cable.join()
    journal.close()
    assert still_there == [""]
    assert (record.error, record.attempts) == (None, 2)


def test_logits_that_cannot_be_fetched_are_missed(run: Callable[..., RunRecord], device: AdbDevice) -> None:
    thief = when_running(
        device,
        lambda: device.script('until rm "$1"/*/logits.bin 2>/dev/null; do sleep 0.1; done', ROOT / "runs", what="rm"),
    )
    record = run(replace(LONG_RUN, prompts=(replace(LONG, repetitions=1, n_gen=60, logits=Logits.ALL),)))
    thief.join()
    assert record.error is not None
    assert record.error.status is Status.INFRA
    assert "logits.bin" in record.error.message
    assert len(record.log.generations) == 1


def test_a_phone_that_another_host_took_over_is_left_alone(
    phone: LeasedPhone, run: Callable[..., RunRecord], lab: VirtualLab, tmp_path: Path, device: AdbDevice
) -> None:
    phone.lease.renew(valid_s=0)
    with acquire(phone.facts, holder="host b", adb_port=lab.adb_port, state_dir=tmp_path / "host-b"):
        record = run(LONG_RUN)
        assert record.error is not None
        assert (record.error.status, record.error.kind) == (Status.INFRA, "LeaseError")
        assert "held by host b" in record.error.message
        assert record.log.start is None


def test_another_boot_id_is_a_reboot_and_explains_a_broken_connection(phone: LeasedPhone) -> None:
    broken = TransferError("the connection failed")
    refuse_reboot(phone, phone.facts.boot_id, cause=broken)
    with pytest.raises(PhoneLostError, match="rebooted during the run") as caught:
        refuse_reboot(phone, "00000000-0000-0000-0000-000000000000", cause=broken)
    assert caught.value.found == f"boot id {phone.facts.boot_id}"
    assert caught.value.__cause__ is broken


def test_a_file_damaged_in_the_store_is_pushed_again_and_the_run_succeeds(
    run: Callable[..., RunRecord], artifact: Artifact, device: AdbDevice
) -> None:
    short = replace(LONG_RUN, prompts=(replace(LONG, repetitions=1, n_gen=2),))
    assert run(short).error is None
    context = artifact.manifest.contexts[0]
    device.script(
        'chmod 644 "$1"; printf X | dd of="$1" bs=1 seek=5000 conv=notrunc 2>/dev/null',
        ROOT / "store" / context.sha256 / context.file,
        what="damage the store",
    )
    record = run(short)
    assert record.error is None
    assert record.attempts == 2
    assert record.retried_because is not None
    assert "HASH_MISMATCH" in record.retried_because


def test_a_run_that_takes_too_long_is_ended_on_the_phone(
    run: Callable[..., RunRecord], results: Path, device: AdbDevice
) -> None:
    record = run(replace(LONG_RUN, deadline_s=4.0))
    assert record.error is not None
    assert (record.error.status, record.error.kind) == (Status.INFRA, "DeadlineError")
    assert "not finished in time" in record.error.message
    assert processes(device) == ""
    assert device.run(["ls", ROOT / "runs"]).text == ""
    assert journalled(results) == (record,)


def test_a_runner_that_is_killed_is_not_the_models_failure(run: Callable[..., RunRecord], device: AdbDevice) -> None:
    def kill() -> None:
        device.script('kill -9 "$(cat "$1"/*/pid)"', ROOT / "runs", what="kill the runner")

    killer = when_running(device, kill)
    record = run(LONG_RUN)
    killer.join()
    assert record.error is not None
    assert record.error.status is Status.INFRA
    assert "SIGKILL" in record.error.message


def test_a_kill_for_lack_of_memory_is_read_from_the_phones_log(
    run: Callable[..., RunRecord], device: AdbDevice, virtual: VirtualPhone
) -> None:
    def kill() -> None:
        virtual.log(
            "Kill 'snapgate-runner' (77), uid 2000, oom_score_adj 0 to free 4445960kB rss", tag="lowmemorykiller"
        )
        device.script('kill -9 "$(cat "$1"/*/pid)"', ROOT / "runs", what="kill the runner")

    killer = when_running(device, kill)
    record = run(LONG_RUN)
    killer.join()
    assert record.error is not None
    assert record.error.status is Status.INFRA
    assert "for lack of memory" in record.error.message


def test_an_interrupt_ends_the_runner_and_is_journalled(
    phone: LeasedPhone, artifact: Artifact, results: Path, device: AdbDevice
) -> None:
    journal = JournalWriter(results / "journal" / "s1-main.jsonl")

    def interrupt(text: str) -> None:
        if text.startswith("running for") and threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt

    chatty = replace(LONG_RUN, prompts=(replace(LONG, n_gen=10, repetitions=40),))
    with pytest.raises(KeyboardInterrupt):
        execute(phone, artifact, chatty, session_id="s1", results_dir=results, journal=journal, progress=interrupt)
    journal.close()
    (record,) = journalled(results)
    assert record.error is not None
    assert (record.error.status, record.error.kind) == (Status.INFRA, "KeyboardInterrupt")
    assert processes(device) == ""


def test_a_full_phone_is_named_and_nothing_runs(
    run: Callable[..., RunRecord], results: Path, virtual: VirtualPhone, device: AdbDevice, lab: VirtualLab
) -> None:
    device.run(["rm", "-rf", ROOT / "store"])
    virtual.fail_push_by_full_storage(after_bytes=1000, times=50)
    record = run(LONG_RUN)
    assert record.error is not None
    assert (record.error.status, record.error.kind) == (Status.INFRA, "PhoneStorageError")
    assert "is full" in record.error.message
    assert record.attempts == 1
    assert json.loads((results / "journal" / "s1-main.jsonl").read_text())["entry"]["run_id"] == record.run_id
