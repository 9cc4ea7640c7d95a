"""Whole runs on a phone that lies, breaks and dies: the runner on the stand-in QNN library, in a second each.

A *shim* is a shell script in the runner's place. It may let the real runner work and then spoil what it left.
"""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.device.adb import AdbDevice
from harness.device.fitness import Demand
from harness.device.phone import LeasedPhone
from harness.device.store import ROOT
from harness.journal import JournalWriter, read_journal
from harness.record.job import Logits, Prompt
from harness.record.run import RunRecord
from harness.record.vocabulary import Status
from harness.run.execute import execute
from harness.run.workload import Workload
from harness.virtual.lab import VirtualPhone

pytestmark = [
    pytest.mark.lane("virtual"),
    pytest.mark.lane("build"),
    pytest.mark.xdist_group("wire-hostile"),
]

PROMPT = Prompt(
    prompt_id="p",
    mode="generate",
    tokens=(1, 5, 9, 13, 17),
    n_gen=4,
    ignore_eos=True,
    logits=Logits.ALL,
    repetitions=2,
)
SHORT = Workload(name="short", prompts=(PROMPT,), performance_mode="default", deadline_s=60, stall_s=20,
                 demand=Demand(window_s=0))  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def run(phone: LeasedPhone, standin: Any, results: Path, tmp_path: Path) -> Iterator[Callable[..., RunRecord]]:
    """``run(shim)``: the record of one run, and proof that nothing of it is left on the phone."""
    journal = JournalWriter(results / "journal" / "s1-main.jsonl")

    def go(shim: str | None = None, workload: Workload = SHORT, reconnect_s: float = 5.0) -> RunRecord:
        script = None
        if shim is not None:
            script = tmp_path / "shim"
            script.write_text("#!/system/bin/sh\n" + textwrap.dedent(shim))
        record = execute(
            phone,
            standin.artifact,
            workload,
            session_id="s1",
            results_dir=results,
            journal=journal,
            reconnect_s=reconnect_s,
            runtime=standin.runtime(script),
        )
        assert read_journal(results / "journal").runs[-1] == record
        return record

    yield go
    journal.close()


def spoiled(edit: str, *, say: bool = True) -> str:
    """The real runner works; then ``edit`` changes its files, and the records are shown as they are now."""
    show = "cat records.jsonl" if say else "true"
    return f'./libs/real-snapgate-runner "$@" > said.txt; code=$?\n{edit}\n{show}\nexit $code\n'


def blame(record: RunRecord) -> tuple[Status, str]:
    assert record.error is not None
    return record.error.status, record.error.kind


def left_behind(device: AdbDevice) -> str:
    text = (
        'ls "$1/runs"; ls -A "$1/store"/* | grep "[.]part$";'
        ' for p in /proc/[0-9]*/cmdline; do grep -aq "snapgate-[rs]unner\\|snapgate-[s]ensors" "$p" && echo "$p"; done'
    )
    left = device.script(text, ROOT, what="look").text
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        # What is ended with its connection needs a moment for it.
        time.sleep(0.1)
        left = device.script(text, ROOT, what="look").text
    return left


def test_the_stand_in_gives_a_whole_run(run: Callable[..., RunRecord], device: AdbDevice) -> None:
    record = run()
    assert record.error is None
    assert (record.attempts, len(record.log.generations)) == (1, 2)
    assert left_behind(device) == ""


def test_a_file_that_goes_from_the_store_is_named_and_pushed_again(run: Callable[..., RunRecord]) -> None:
    once = "[ -e /data/local/tmp/once ] || { : > /data/local/tmp/once; rm -f ../../store/*/libQnnHtp.so; }"
    record = run(f'{once}\nexec ./libs/real-snapgate-runner "$@"\n')
    assert record.error is None
    assert record.attempts == 2
    assert record.retried_because is not None
    assert record.retried_because.startswith("TransferError: libs/libQnnHtp.so is gone from the phone; LIBRARY_LOAD: ")


def sed(expression: str) -> str:
    return f"sed -i '{expression}' records.jsonl"


SPOILERS = {
    "logits_cut": ("truncate -s 100 logits.bin 2>/dev/null || { head -c 100 logits.bin > l; mv l logits.bin; }",
                   "does not hold its logits"),
    "logits_empty": (": > logits.bin", "does not hold its logits"),
    "logits_gone": ("rm logits.bin", "pull logits.bin"),
    "rows_lie": (sed(r"s/\"n_rows\":8/\"n_rows\":7/"), "7 x 32 logits, 8 x 32 were computed"),
    "columns_lie": (sed(r"s/\"n_columns\":32/\"n_columns\":16/"), "8 x 16 logits"),
    "offset_negative": (sed(r"s/\"offset_bytes\":0/\"offset_bytes\":-512/"), "does not hold"),
    "dtype_unknown": (sed(r"s/\"dtype\":\"ufixed16\"/\"dtype\":\"float64\"/"), "unknown type 'float64'"),
    "file_is_another": (sed(r"s/\"file\":\"logits.bin\"/\"file\":\"job.json\"/"), "a file that no run"),
    "file_outside": (sed(r"s/\"file\":\"logits.bin\"/\"file\":\"..\/x.bin\"/"), "a file that no run"),
    "file_with_nul": (sed(r"s/\"file\":\"logits.bin\"/\"file\":\"a\\u0000.bin\"/"), "a file that no run"),
    "file_surrogate": (sed(r"s/\"file\":\"logits.bin\"/\"file\":\"\\ud800.bin\"/"), "records are damaged"),
    "token_range": (sed(r"s/\"token_ids\":\[[0-9]*,/\"token_ids\":[32,/"), "token id 32"),
    "token_negative": (sed(r"s/\"argmax_ids\":\[[0-9]*,/\"argmax_ids\":[-1,/"), "token id -1"),
    "stamp_negative": (sed(r"s/\"start_ns\":[0-9]*,\"end/\"start_ns\":-5,\"end/"),
                       "outside the run"),
    "stamp_far": (sed(r"s/\"end_ns\":[0-9]*,\"pre/\"end_ns\":9000000000000000000,\"pre/"), "outside"),
    "stamp_1e300": (sed(r"s/\"end_ns\":[0-9]*,\"pre/\"end_ns\":1e300,\"pre/"), "records are damaged"),
    "stamp_400_digits": (
        "z=$(printf '%0400d' 0);"
        " sed -i \"s/\\\"end_ns\\\":[0-9]*,\\\"pre/\\\"end_ns\\\":9$z,\\\"pre/\" records.jsonl",
        "records are damaged"),
    "nan": (sed(r"s/\"nll\":\[\]/\"nll\":[NaN]/"), "records are damaged"),
    "infinite": (sed(r"s/\"nll\":\[\]/\"nll\":[1e999]/"), "records are damaged"),
    "repetition_twice": (sed(r"s/\"repetition\":1/\"repetition\":0/"), "missing, or there twice"),
    "prompt_html": (sed(r"s/\"prompt_id\":\"p\"/\"prompt_id\":\"<script>alert(1)<\/script>\"/"),
                    "which was not asked for"),
    "another_run": (sed(r"s/\"run_id\":\"[^\"]*\"/\"run_id\":\"other\"/"), "another run (other)"),
    "another_nonce": (sed(r"s/\"nonce\":\"[^\"]*\"/\"nonce\":\"0\"/"), "belong to another run"),
    "no_start": (sed(r"1d; s/\"n_records\":\([0-9]*\)/\"n_records\":9/"), "damaged"),
    "generation_cut": ("n=$(wc -l < records.jsonl); sed -i '/\"type\":\"generation\"/d' records.jsonl;"
                       " k=$(wc -l < records.jsonl);"
                       " sed -i \"s/\\\"n_records\\\":[0-9]*/\\\"n_records\\\":$((k-1))/\" records.jsonl",
                       "after 0 of 2 generations"),
    "end_gone": ("sed -i '$d' records.jsonl", "no `end` record"),
    "garbage": (r"printf 'zz\000\377\376\033[31m\n' >> records.jsonl", "records are damaged"),
    "invalid_utf8": (sed(r"s/\"prompt_id\":\"p\"/\"prompt_id\":\"\xff\xfe\"/"), "not asked for"),
    "huge_line": ("head -c 3000000 /dev/zero | tr '\\000' '[' >> records.jsonl; echo >> records.jsonl", "damaged"),
    "foreign_context": (sed(r"/\"type\":\"context\"/s/\"sha256\":\"[0-9a-f]*\"/\"sha256\":\"00\"/"),
                        "not the artifact's"),
    "fault_and_ok": (
        "sed -i '$d' records.jsonl; k=$(wc -l < records.jsonl);"
        " echo '{\"type\":\"error\",\"error\":\"EXECUTE_FAILED\",\"exit_code\":26,\"where\":\"\","
        "\"what\":\"x\",\"found\":\"\","
        "\"expected\":\"\",\"next_step\":\"\",\"qnn_code\":null,\"qnn_name\":null}' >> records.jsonl;"
        " tail -n 1 said.txt | sed \"s/\\\"n_records\\\":[0-9]*/\\\"n_records\\\":$((k+1))/\" >> records.jsonl",
        "said OK and reports EXECUTE_FAILED"),
}  # fmt: skip


QUICK = ("logits_cut", "file_outside", "token_range", "stamp_1e300", "generation_cut", "another_nonce", "garbage")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SPOILERS]
)
def test_spoiled_results_are_the_labs_fault_and_say_so(
    run: Callable[..., RunRecord], device: AdbDevice, name: str
) -> None:
    edit, cause = SPOILERS[name]
    record = run(spoiled(edit))
    assert record.error is not None
    assert record.error.status is Status.INFRA, record.error
    assert cause in record.error.message
    assert record.attempts == (1 if name == "logits_gone" else 2)
    assert left_behind(device) == ""


def test_line_ends_of_windows_change_nothing(run: Callable[..., RunRecord]) -> None:
    assert run(spoiled(r"sed -i 's/$/\r/' records.jsonl")).error is None


@pytest.mark.parametrize(
    "edit", ["head -n 4 records.jsonl > r; mv r records.jsonl", ": > records.jsonl", "rm records.jsonl"]
)
def test_records_that_were_sent_are_kept_when_the_phones_file_is_spoiled(
    run: Callable[..., RunRecord], edit: str
) -> None:
    record = run('./libs/real-snapgate-runner "$@"; code=$?\n' + edit + "\nexit $code\n")
    assert blame(record) == (Status.INFRA, "TransferError" if "rm " not in edit else "InfraError")
    assert "records.jsonl" in (record.error.message if record.error else "")
    assert len(record.log.generations) == 2
    assert record.log.end is not None


def test_a_kill_for_memory_is_told_with_the_phones_own_line(run: Callable[..., RunRecord]) -> None:
    record = run("log -t lowmemorykiller \"Kill 'snapgate-runner' (77), uid 2000, to free 9kB\"; kill -9 $$")
    assert blame(record) == (Status.INFRA, "InfraError")
    assert record.error is not None
    assert "for lack of memory" in record.error.message
    assert "Kill 'snapgate-runner' (77)" in record.error.message


@pytest.mark.parametrize(("taken", "status"), [(0, Status.FAIL), (12 << 30, Status.INFRA)])
def test_memory_that_others_took_is_the_labs_fault_and_a_model_that_is_too_large_its_own(
    run: Callable[..., RunRecord], virtual: VirtualPhone, taken: int, status: Status
) -> None:
    virtual.press_memory(taken)
    fault = (
        '{"type":"error","error":"OUT_OF_MEMORY","exit_code":30,"where":"","what":"no memory","found":"",'
        '"expected":"","next_step":"","qnn_code":null,"qnn_name":null}'
    )
    work = './libs/real-snapgate-runner "$@" > said.txt; '
    record = run(f"{work}grep -v '\"end\"' said.txt > records.jsonl; echo '{fault}' >> records.jsonl; exit 30")
    assert record.error is not None
    assert (record.error.status, record.conditions.memory_available_bytes == 0) == (status, taken > 0)
    assert ("the phone had 0 MB free at the start" in record.error.message) is (taken > 0)


def test_a_kill_beside_one_of_somebody_else_is_not_told_as_one_for_memory(run: Callable[..., RunRecord]) -> None:
    record = run("log -t lowmemorykiller \"Kill 'com.game' (7), to free 9kB\"; kill -9 $$")
    assert blame(record) == (Status.INFRA, "InfraError")
    assert record.error is not None
    assert record.error.message.startswith("the runner was ended by SIGKILL")


def test_a_crash_at_work_is_the_models_and_keeps_its_records(run: Callable[..., RunRecord], device: AdbDevice) -> None:
    work = './libs/real-snapgate-runner "$@" > said.txt; '
    record = run(work + "grep -v '\"end\"' said.txt > records.jsonl; kill -SEGV $$")
    assert blame(record) == (Status.FAIL, "RunnerError")
    assert len(record.log.generations) == 2
    assert record.attempts == 1
    assert left_behind(device) == ""


@pytest.mark.parametrize(
    ("shim", "cause"),
    [
        ("kill -SEGV $$", "before its first record, so before any model"),
        ("echo 'sh: write error: No space left on device' >&2; exit 1", "is full"),
        ("exit 26", "its records do not say why"),
        ("exit 0", "pull records.jsonl"),
        ("kill -9 $PPID; sleep 1", "the exit status was lost"),
        ("printf '\\033[2J<b>\\342\\200\\256x</b>\\n' >&2; exit 3", "<b>x</b>"),
    ],
    ids=["crash", "full", "code", "nothing", "status_lost", "escape"],
)
def test_a_runner_that_leaves_nothing_is_never_the_models_fault(
    run: Callable[..., RunRecord], device: AdbDevice, shim: str, cause: str
) -> None:
    record = run(shim)
    assert record.error is not None
    assert record.error.status is Status.INFRA
    assert cause in record.error.message
    assert "\x1b" not in record.error.message
    assert left_behind(device) == ""


def test_a_runner_that_stalls_is_ended_and_called_stalled(run: Callable[..., RunRecord], device: AdbDevice) -> None:
    record = run("exec sleep 300", replace(SHORT, stall_s=1.0))
    assert blame(record) == (Status.INFRA, "DeadlineError")
    assert "no sign of life for 1 s" in (record.error.message if record.error else "")
    assert left_behind(device) == ""


def test_endless_output_ends_with_the_deadline_and_is_cut(run: Callable[..., RunRecord], device: AdbDevice) -> None:
    record = run("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyy; done", replace(SHORT, deadline_s=2.0))
    assert blame(record) == (Status.INFRA, "DeadlineError")
    assert len(record.log.unknown_lines) == 20
    assert left_behind(device) == ""


def test_a_binary_for_another_arch_is_still_shown_for_what_it_is(run: Callable[..., RunRecord]) -> None:
    record = run(spoiled(r"sed -i 's/\"dsp_arch\":75/\"dsp_arch\":73/' records.jsonl"))
    assert record.error is None
    assert {context.dsp_arch for context in record.log.contexts} == {73}


WAITING = './libs/real-snapgate-runner "$@" > said.txt; head -n {n} said.txt; sleep 30; tail -n +{n} said.txt\n'


@pytest.mark.parametrize("n_records", [0, 1, 12], ids=["start", "load", "decode"])
@pytest.mark.parametrize("what", ["kill", "reboot"])
@pytest.mark.slow
def test_a_phone_that_dies_at_any_stage_is_the_labs_fault(
    run: Callable[..., RunRecord], virtual: VirtualPhone, device: AdbDevice, what: str, n_records: int
) -> None:
    struck = threading.Timer(4.0, virtual.kill if what == "kill" else virtual.reboot)
    struck.start()
    try:
        record = run(WAITING.format(n=n_records), replace(SHORT, deadline_s=12.0), reconnect_s=1.0)
    finally:
        struck.join()
        virtual.reboot()
    assert record.error is not None
    assert record.error.status is Status.INFRA
    assert record.error.kind in ("PhoneLostError", "DeadlineError")
    assert device.wait(30)


@pytest.mark.parametrize("fault", ["corrupt", "full", "disconnect"])
def test_a_push_that_breaks_names_its_cause(
    run: Callable[..., RunRecord], virtual: VirtualPhone, device: AdbDevice, fault: str
) -> None:
    pattern = "*job.json*"
    if fault == "corrupt":
        virtual.corrupt_push(pattern=pattern, offset=10, times=2)
    elif fault == "full":
        virtual.fail_push_by_full_storage(10, pattern=pattern)
    else:
        virtual.fail_push_by_disconnect(10, pattern=pattern, times=2)
    record = run(None, reconnect_s=20.0)
    assert record.error is not None
    assert record.error.status is Status.INFRA
    assert "push job.json" in record.error.message
    expected = {"corrupt": ("TransferError",), "full": ("PhoneStorageError",),
                "disconnect": ("TransferError", "PhoneLostError")}  # fmt: skip
    assert record.error.kind in expected[fault]
    assert device.wait(30)
    assert left_behind(device) == ""


def test_another_phone_behind_the_transport_is_never_run_on(
    run: Callable[..., RunRecord], phone: LeasedPhone, standin: Any, results: Path
) -> None:
    stranger = replace(phone, facts=replace(phone.facts, serial="ANOTHER"))
    journal = JournalWriter(results / "journal" / "s2-main.jsonl")
    record = execute(
        stranger, standin.artifact, SHORT, session_id="s2", results_dir=results, journal=journal, reconnect_s=0.5,
        runtime=standin.runtime(),
    )  # fmt: skip
    journal.close()
    assert blame(record) == (Status.INFRA, "PhoneLostError")
    assert "is no longer at" in (record.error.message if record.error else "")
    assert record.log.start is None
