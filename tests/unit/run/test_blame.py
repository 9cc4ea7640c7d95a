"""Who is to blame: every exit code, every signal, and records that do not add up."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from importlib.resources import files

import pytest

from harness.record.artifact import Artifact
from harness.record.job import Prompt
from harness.record.run import Conditions
from harness.record.runner import (
    EMPTY_LOG,
    Clock,
    End,
    Generation,
    Phase,
    RunnerFault,
    RunnerLog,
    Start,
)
from harness.record.vocabulary import Status
from harness.run.blame import RUNNER_EXITS, SIGNALS, Blame, Evidence, Judgement, judge_run, memory_killer_lines
from harness.run.workload import Workload

CLOCK = Clock(monotonic_ns=0, boottime_ns=0, realtime_ns=0)
LATER = Clock(monotonic_ns=10, boottime_ns=10, realtime_ns=10)
START = Start(
    schema="snapgate.runner/1",
    run_id="r",
    nonce="n",
    runner_version="1",
    abi="x",
    compiler="c",
    build_type="Release",
    pid=2,
    clock=CLOCK,
)
PHASE = Phase(name="read", detail="", start_ns=0, end_ns=1)
GENERATION = Generation(
    prompt_id="p", mode="generate", repetition=0, warmup=False, step_with="chunk", n_prompt=1, n_cached=0, start_ns=0,
    end_ns=1, prefill=(), relayout_ns=0, token_ns=(1,), token_ids=(3,), argmax_ids=(3,), stop="length", nll=(),
    logits=None, heap_allocations=0,
)  # fmt: skip
WHOLE = RunnerLog(
    start=START, platform=None, contexts=(), phases=(PHASE,), buffers=None, memory=(), generations=(GENERATION,),
    fault=None, end=End(exit_code=0, n_records=3, clock=LATER), unknown_lines=(),
)  # fmt: skip
WORKLOAD = Workload(name="w", prompts=(Prompt(prompt_id="p", mode="generate", tokens=(1,), n_gen=1),))
LMKD = (
    "09-14 17:16:41.000   400   400 I lowmemorykiller: Kill 'snapgate-runner' (8123), uid 2000, oom_score_adj 0 to free"
    " 4445960kB rss"
)


def conditions(free: int | None) -> Conditions:
    return Conditions(
        battery_percent=None, battery_celsius=None, charging=None, thermal_status=None, memory_available_bytes=free,
        storage_available_bytes=None, uptime_s=None, violations=(),
    )  # fmt: skip


def fault(code: int) -> RunnerFault:
    return RunnerFault(
        error=RUNNER_EXITS[code].name, exit_code=code, where="ar1.bin", what="it broke",
        found="x", expected="y", next_step="z", qnn_code=1002, qnn_name="SOME",
    )  # fmt: skip


def judge(
    artifact: Artifact,
    exit_code: int,
    log: RunnerLog = WHOLE,
    *,
    stderr: str = "",
    logcat: str = "",
    free: int | None = None,
) -> Judgement:
    evidence = Evidence(exit_code=exit_code, stderr=stderr, logcat=logcat, log=log, run_id="r", nonce="n")
    return judge_run(evidence, workload=WORKLOAD, manifest=artifact.manifest, conditions=conditions(free))


def status(judgement: Judgement) -> Status | None:
    return judgement.error.status if judgement.error is not None else None


def with_fault(code: int) -> RunnerLog:
    return RunnerLog(
        start=START, platform=None, contexts=(), phases=(), buffers=None, memory=(), generations=(), fault=fault(code),
        end=End(exit_code=code, n_records=2, clock=CLOCK), unknown_lines=(),
    )  # fmt: skip


def test_the_table_has_every_code_of_the_schema_under_its_name() -> None:
    schema = json.loads((files("harness.record") / "schema" / "exit_codes.json").read_text())
    assert {meaning.name: code for code, meaning in RUNNER_EXITS.items()} == schema["runner"]


def test_a_whole_run_is_nobodys_fault(artifact: Artifact) -> None:
    assert judge(artifact, 0) == Judgement(error=None, transient=False)


@pytest.mark.parametrize("code", [2, 10, 11, 12, 20, 21, 22, 23, 31, 40])
def test_faults_of_the_lab_say_nothing_about_the_model(artifact: Artifact, code: int) -> None:
    assert status(judge(artifact, code, with_fault(code))) is Status.INFRA


@pytest.mark.parametrize("code", [13, 14, 15, 24, 25, 26, 70])
def test_faults_of_the_model_fail(artifact: Artifact, code: int) -> None:
    judgement = judge(artifact, code, with_fault(code))
    assert status(judgement) is Status.FAIL
    assert not judgement.transient


@pytest.mark.parametrize(("code", "transient"), [(11, True), (12, True), (20, False), (23, False), (31, False)])
def test_only_damaged_or_missing_files_are_worth_a_second_try(artifact: Artifact, code: int, transient: bool) -> None:
    assert judge(artifact, code, with_fault(code)).transient is transient


def test_the_message_carries_the_runners_own_words(artifact: Artifact) -> None:
    judgement = judge(artifact, 26, with_fault(26))
    assert judgement.error is not None
    assert judgement.error.kind == "RunnerError"
    assert judgement.error.message == (
        "EXECUTE_FAILED: a graph failed while running: it broke; found: x; expected: y; QNN 1002 SOME; next step: z"
    )


def test_out_of_memory_is_the_models_when_the_phone_had_enough(artifact: Artifact) -> None:
    assert status(judge(artifact, 30, with_fault(30), free=14)) is Status.FAIL
    assert status(judge(artifact, 30, with_fault(30), free=13)) is Status.INFRA
    assert status(judge(artifact, 30, with_fault(30), free=None)) is Status.FAIL
    assert status(judge(artifact, 30, with_fault(30), free=10**9, logcat=LMKD)) is Status.INFRA


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL])
def test_a_crash_fails(artifact: Artifact, number: signal.Signals) -> None:
    judgement = judge(artifact, 128 + number, replace(EMPTY_LOG, start=START), stderr="assertion failed")
    assert status(judgement) is Status.FAIL
    assert judgement.error is not None
    assert judgement.error.message.startswith(f"the runner was ended by {number.name}")


def test_a_crash_stays_the_models_when_the_phone_also_killed_others(artifact: Artifact) -> None:
    assert status(judge(artifact, 139, replace(EMPTY_LOG, start=START), logcat=LMKD)) is Status.FAIL


def test_a_kill_for_memory_names_the_phones_line(artifact: Artifact) -> None:
    judgement = judge(artifact, 137, EMPTY_LOG, logcat="I ActivityManager: x\n" + LMKD + "\n")
    assert status(judgement) is Status.INFRA
    assert judgement.error is not None
    assert "for lack of memory" in judgement.error.message
    assert "Kill 'snapgate-runner' (8123)" in judgement.error.message


def test_a_kill_of_somebody_else_is_not_told_as_the_reason(artifact: Artifact) -> None:
    other = LMKD.replace("snapgate-runner", "com.some.game")
    judgement = judge(artifact, 137, EMPTY_LOG, logcat=other)
    assert status(judgement) is Status.INFRA
    assert judgement.error is not None
    assert judgement.error.message.startswith("the runner was ended by SIGKILL")
    assert "killed another process" in judgement.error.message


def test_a_kill_without_a_reason_is_still_not_the_models(artifact: Artifact) -> None:
    assert status(judge(artifact, 137, EMPTY_LOG)) is Status.INFRA


def test_every_signal_has_the_name_it_is_listed_under() -> None:
    assert {number: meaning.name for number, meaning in SIGNALS.items()} == {n: signal.Signals(n).name for n in SIGNALS}
    assert all(meaning.blame is not Blame.NOBODY for meaning in SIGNALS.values())


@pytest.mark.parametrize(
    ("code", "stderr"),
    [
        (126, "not executable: /data/x"),
        (127, "sh: ./snapgate-runner: not found"),
        (1, 'CANNOT LINK EXECUTABLE "./snapgate-runner": library "libc++_shared.so" not found'),
        (127, "./snapgate-runner: error while loading shared libraries: libatomic.so.1"),
    ],
)
def test_a_runner_that_could_not_start_is_the_labs(artifact: Artifact, code: int, stderr: str) -> None:
    judgement = judge(artifact, code, EMPTY_LOG, stderr=stderr)
    assert status(judgement) is Status.INFRA
    assert judgement.error is not None
    assert stderr[:20] in judgement.error.message


def test_an_exit_code_nobody_defined_fails_once_the_runner_was_at_work(artifact: Artifact) -> None:
    assert status(judge(artifact, 77, replace(EMPTY_LOG, start=START))) is Status.FAIL


def test_a_crash_before_the_first_record_says_nothing_about_a_model(artifact: Artifact) -> None:
    judgement = judge(artifact, 139, EMPTY_LOG)
    assert status(judgement) is Status.INFRA
    assert judgement.error is not None
    assert "before its first record" in judgement.error.message


@pytest.mark.parametrize("code", [14, 24, 26, 30])
def test_a_code_of_the_model_without_a_record_of_why_is_not_held_against_it(artifact: Artifact, code: int) -> None:
    for log in (EMPTY_LOG, replace(EMPTY_LOG, start=START), with_fault(25)):
        judgement = judge(artifact, code, log, free=10**9)
        assert status(judgement) is Status.INFRA
        assert judgement.error is not None
        assert f"exit code {code}, and its records do not say why" in judgement.error.message


def test_a_run_folder_on_a_full_phone_is_the_storages(artifact: Artifact) -> None:
    judgement = judge(artifact, 1, EMPTY_LOG, stderr="sh: echo: write error: No space left on device")
    assert status(judgement) is Status.INFRA
    assert judgement.error is not None
    assert judgement.error.kind == "PhoneStorageError"
    assert "is full" in judgement.error.message


def test_a_run_folder_that_is_gone_is_the_labs(artifact: Artifact) -> None:
    judgement = judge(artifact, 1, EMPTY_LOG, stderr="sh: cd: /data/x: No such file or directory")
    assert status(judgement) is Status.INFRA


def test_a_signal_no_program_sends_to_itself_is_the_labs(artifact: Artifact) -> None:
    assert status(judge(artifact, 128 + signal.SIGUSR1, replace(EMPTY_LOG, start=START))) is Status.INFRA


def test_a_well_ended_run_without_its_end_record_is_damaged_on_the_way(artifact: Artifact) -> None:
    cut = RunnerLog(
        start=START, platform=None, contexts=(), phases=(PHASE,), buffers=None, memory=(), generations=(GENERATION,),
        fault=None, end=None, unknown_lines=(),
    )  # fmt: skip
    judgement = judge(artifact, 0, cut)
    assert status(judgement) is Status.INFRA
    assert judgement.transient


def test_a_lost_record_is_noticed_by_the_count(artifact: Artifact) -> None:
    short = RunnerLog(
        start=START, platform=None, contexts=(), phases=(), buffers=None, memory=(), generations=(GENERATION,),
        fault=None, end=End(exit_code=0, n_records=3, clock=LATER), unknown_lines=(),
    )  # fmt: skip
    judgement = judge(artifact, 0, short)
    assert status(judgement) is Status.INFRA
    assert judgement.error is not None
    assert "2 of 3 are readable" in judgement.error.message


def test_records_of_another_run_are_not_taken(artifact: Artifact) -> None:
    evidence = Evidence(exit_code=0, stderr="", logcat="", log=WHOLE, run_id="r", nonce="another")
    judgement = judge_run(evidence, workload=WORKLOAD, manifest=artifact.manifest, conditions=conditions(None))
    assert status(judgement) is Status.INFRA


def test_ok_with_too_few_generations_is_no_answer_and_not_the_models(artifact: Artifact) -> None:
    none = RunnerLog(
        start=START, platform=None, contexts=(), phases=(PHASE,), buffers=None, memory=(), generations=(), fault=None,
        end=End(exit_code=0, n_records=2, clock=CLOCK), unknown_lines=(),
    )  # fmt: skip
    judgement = judge(artifact, 0, none)
    assert status(judgement) is Status.INFRA
    assert judgement.error is not None
    assert judgement.error.message == ("the records do not answer the job: the runner said OK after 0 of 1 generations")


def test_lines_of_the_memory_killers_are_found_and_others_not() -> None:
    kernel = "09-14 17:16:41.100 0 0 E : Out of memory: Killed process 8123 (snapgate-runner)"
    idle = "09-14 17:16:41.000 400 400 I lowmemorykiller: Using psi monitors for memory pressure detection\n"
    assert memory_killer_lines("I am: fine\n" + idle + kernel + "\n" + LMKD + "\nI Zygote: exited due to signal 9") == (
        kernel,
        " ".join(LMKD.split()),
    )


SSR = "12-03 05:00:01.000 1 1 E kernel: remoteproc remoteproc2: crash detected in remoteproc-cdsp: type fatal error\n"
DENIED = '12-03 05:00:01.000 1 1 W audit: avc:  denied  { open } for pid=2 comm="snapgate-runner" name="cdsp"\n'
CRASH = (
    "12-03 05:00:01.000 1 1 F DEBUG : pid: 2, tid: 2, name: snapgate-runner\n"
    "12-03 05:00:01.000 1 1 F DEBUG : signal 11 (SIGSEGV), code 1, fault addr 0x10\n"
)


@pytest.mark.parametrize("code", [23, 24, 25, 26, 41])
def test_a_crash_of_the_cdsp_is_the_labs_and_worth_a_second_try(artifact: Artifact, code: int) -> None:
    judgement = judge(artifact, code, with_fault(code), logcat=SSR)
    assert (status(judgement), judgement.transient) == (Status.INFRA, True)
    assert judgement.error is not None
    assert "the phone's cDSP crashed during the run" in judgement.error.message


def test_a_crash_of_the_cdsp_excuses_no_wrong_artifact(artifact: Artifact) -> None:
    assert status(judge(artifact, 13, with_fault(13), logcat=SSR)) is Status.FAIL


def test_a_denied_access_is_named_and_not_tried_again(artifact: Artifact) -> None:
    judgement = judge(artifact, 23, with_fault(23), logcat=DENIED)
    assert (status(judgement), judgement.transient) == (Status.INFRA, False)
    assert judgement.error is not None
    assert "SELinux denied the runner an access" in judgement.error.message


def test_a_crash_of_the_runner_fails_and_quotes_its_tombstone(artifact: Artifact) -> None:
    judgement = judge(artifact, 128 + signal.SIGSEGV, logcat=CRASH)
    assert status(judgement) is Status.FAIL
    assert judgement.error is not None
    assert "tombstone: signal 11 (SIGSEGV), code 1, fault addr 0x10" in judgement.error.message


def test_a_runner_that_fell_with_the_cdsp_is_no_failure_of_the_model(artifact: Artifact) -> None:
    assert status(judge(artifact, 128 + signal.SIGABRT, logcat=CRASH + SSR)) is Status.INFRA
