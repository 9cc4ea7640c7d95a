"""What can go wrong, and the one structured error the runner gives for it."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import signal
import subprocess
from pathlib import Path, PurePosixPath

import pytest

import harness.record
from harness.record.job import Logits, Prompt

pytestmark = pytest.mark.lane("build")

CODES = json.loads((Path(harness.record.__file__).parent / "schema" / "exit_codes.json").read_text())["runner"]


def prompt(n_prompt=9, n_gen=4, **options):
    tokens = tuple((7 * i + 3) % 32 for i in range(n_prompt))
    return Prompt(prompt_id="p", mode="generate", tokens=tokens, n_gen=n_gen, ignore_eos=True, **options)


def check_fault(outcome, error):
    """The run ended with this error, said so everywhere, and left nothing behind."""
    fault = outcome.log.fault
    assert fault is not None, outcome.stderr
    assert fault.error == error
    assert fault.exit_code == CODES[error]
    assert outcome.returncode == CODES[error]
    assert outcome.log.end.exit_code == CODES[error]
    assert outcome.log.unknown_lines == ()
    assert fault.what
    assert fault.next_step
    assert f"{error}: " in outcome.stderr
    assert "standin violation" not in outcome.stderr
    return fault


@pytest.mark.parametrize(
    ("failure", "error", "what", "qnn_name"),
    [
        ("backendCreate:1:1002", "BACKEND_FAILED", "backendCreate", "MEM_ALLOC"),
        ("deviceCreate:1:14001", "DEVICE_FAILED", "deviceCreate", "DEVICE_INVALID_CONFIG"),
        ("systemContextCreate:1:30002", "CONTEXT_FAILED", "systemContextCreate", "SYSTEM_OPERATION_FAILED"),
        ("systemContextGetMetaData:2:30010", "CONTEXT_FAILED", "systemContextGetMetaData", "SYSTEM_MALFORMED_BINARY"),
        ("contextCreateFromBinary:2:5000", "CONTEXT_FAILED", "contextCreateFromBinary", "CONTEXT_INVALID_ARGUMENT"),
        ("graphRetrieve:2:6003", "GRAPH_FAILED", "graphRetrieve", "GRAPH_INVALID_NAME"),
        ("graphExecute:1:1007", "EXECUTE_FAILED", "graphExecute", "SYSTEM_COMMUNICATION"),
        ("graphExecute:5:6031", "EXECUTE_FAILED", "graphExecute", "GRAPH_ABORTED"),
        ("graphExecute:5:59999", "EXECUTE_FAILED", "graphExecute", "UNKNOWN"),
    ],
)
def test_a_failed_call_is_reported_with_its_code_and_name(quantised, failure, error, what, qnn_name):
    job = quantised.job(prompt(), performance_mode="burst")
    fault = check_fault(quantised.run(job, environment={"FAKE_QNN_FAIL": failure}), error)
    assert fault.what == f"{what} failed"
    assert fault.qnn_code == int(failure.rsplit(":", 1)[1])
    assert fault.qnn_name == qnn_name


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("backendCreate", "BACKEND_FAILED"),
        ("deviceCreate", "DEVICE_FAILED"),
        ("systemContextCreate", "CONTEXT_FAILED"),
        ("contextCreateFromBinary", "CONTEXT_FAILED"),
        ("graphRetrieve", "GRAPH_FAILED"),
    ],
)
def test_a_call_that_claims_success_and_makes_nothing_is_a_fault(quantised, call, error):
    job = quantised.job(prompt(), performance_mode="burst")
    fault = check_fault(quantised.run(job, environment={"FAKE_QNN_FAIL": f"{call}:1:0"}), error)
    assert (fault.what, fault.found, fault.qnn_code) == (f"{call} failed", "no error, and nothing made", None)


def test_a_failed_step_is_placed_by_graph_and_position(quantised):
    fault = check_fault(
        quantised.run(quantised.job(prompt()), environment={"FAKE_QNN_FAIL": "graphExecute:5:6031"}), "EXECUTE_FAILED"
    )
    assert fault.where == "ar1 at position 10"  # 9 prompt tokens in 3 chunks, then the second decode step


def test_a_library_without_logging_is_used_without_logging(quantised):
    outcome = quantised.run(quantised.job(prompt()), environment={"FAKE_QNN_FAIL": "logCreate:1:11002"})
    assert outcome.returncode == 0
    assert "no logging: LOG_INITIALIZATION" in outcome.stderr


@pytest.mark.parametrize(
    "slot",
    ["backendCreate", "backendGetBuildId", "backendFree", "contextCreateFromBinary", "contextFree", "graphRetrieve",
     "graphExecute", "logCreate", "logFree", "deviceGetInfrastructure", "deviceCreate", "deviceFree",
     "systemContextGetMetaData"],
)  # fmt: skip
def test_a_hole_in_the_function_table_is_named(quantised, slot):
    outcome = quantised.run(quantised.job(prompt()), environment={"FAKE_QNN_NULL": slot})
    assert check_fault(outcome, "API_UNSUPPORTED").found == f"{slot} is null"


@pytest.mark.parametrize(
    ("claim", "value", "found"),
    [
        ("FAKE_QNN_CORE", "2.7.2", "STANDIN_HTP (backend 6) core API 2.7.2"),
        ("FAKE_QNN_CORE", "3.0.0", "STANDIN_HTP (backend 6) core API 3.0.0"),
        ("FAKE_QNN_BACKEND_ID", "4", "STANDIN_HTP (backend 4) core API 2.40.0"),
        ("FAKE_QNN_SYSTEM", "1.1.0", "System API 1.1.0"),
    ],
)
def test_an_unsupported_generation_is_refused_by_name(quantised, claim, value, found):
    outcome = quantised.run(quantised.job(prompt()), environment={claim: value})
    assert check_fault(outcome, "API_UNSUPPORTED").found == found


def with_libraries(job, **paths):
    libraries = dataclasses.replace(job.libraries, **{k: PurePosixPath(v) for k, v in paths.items()})
    return dataclasses.replace(job, libraries=libraries)


def test_a_library_that_is_not_there_or_is_another_one_is_named(quantised, build):
    job = quantised.job(prompt())
    missing = check_fault(quantised.run(with_libraries(job, backend="/no/libQnnHtp.so")), "LIBRARY_LOAD")
    assert missing.where == "/no/libQnnHtp.so"
    assert "No such file" in missing.found
    swapped = check_fault(quantised.run(with_libraries(job, backend=build.system)), "LIBRARY_LOAD")
    assert swapped.found == "no symbol QnnInterface_getProviders"
    text = quantised.folder / "text.so"
    text.write_text("no library")
    check_fault(quantised.run(with_libraries(job, system=text)), "LIBRARY_LOAD")


def test_a_damaged_file_is_caught_by_its_hash_although_the_library_would_load_it(quantised):
    job = quantised.job(prompt())
    binary = Path(job.contexts[1].path)
    binary.write_text(binary.read_text().replace("standin-compiler-1", "standin-compiler-2"))
    fault = check_fault(quantised.run(job), "HASH_MISMATCH")
    assert fault.where == str(binary)
    assert fault.expected == job.contexts[1].sha256


def test_a_file_of_another_size_is_caught_before_it_is_hashed(quantised):
    job = quantised.job(prompt())
    with Path(job.contexts[0].path).open("a") as stream:
        stream.write(" ")
    fault = check_fault(quantised.run(job), "HASH_MISMATCH")
    assert fault.found == f"{job.contexts[0].n_bytes + 1} bytes"


def test_a_damaged_or_short_rope_table_is_caught(quantised):
    job = quantised.job(prompt())
    rope = Path(job.model.rope_table)
    raw = bytearray(rope.read_bytes())
    raw[5] ^= 1
    rope.write_bytes(raw)
    assert check_fault(quantised.run(job), "HASH_MISMATCH").where == str(rope)
    rope.write_bytes(raw[:-4])
    assert check_fault(quantised.run(job), "HASH_MISMATCH").expected == f"{len(raw)} bytes"


def test_a_missing_or_empty_file_is_named(quantised):
    job = quantised.job(prompt())
    Path(job.contexts[1].path).unlink()
    assert check_fault(quantised.run(job), "FILE_MISSING").where == str(job.contexts[1].path)
    Path(job.contexts[1].path).touch()
    assert check_fault(quantised.run(job), "FILE_MISSING").found == "0 bytes"
    job = quantised.job(prompt())
    Path(job.model.rope_table).unlink()
    assert check_fault(quantised.run(job), "FILE_MISSING").where == str(job.model.rope_table)


@pytest.mark.parametrize(
    ("attribute", "value", "found", "expected"),
    [
        ("dsp_arch", 79, "v79", "v75"),
        ("soc_number", 69, "soc 69", "soc 57"),
        ("info_version", 2, "nothing", "v75"),
    ],
)
def test_a_binary_for_another_target_is_refused(quantised, attribute, value, found, expected):
    setattr(quantised, attribute, value)
    fault = check_fault(quantised.run(quantised.job(prompt())), "ARCH_MISMATCH")
    assert (fault.found, fault.expected) == (found, expected)


def key_in(document):
    return document["graphs"][0]["inputs"][4]


@pytest.mark.parametrize(
    ("change", "where", "found"),
    [
        (lambda d: key_in(d).update(data_type=0x416), "ar4/past_key_0_in", "ufixed16"),
        (lambda d: key_in(d).update(dims=[2, 1, 4, 11]), "ar4/past_key_0_in", "(2, 1, 4, 11)"),
        (lambda d: key_in(d).update(dims=[8, 12]), "ar4/past_key_0_in", "(8, 12)"),
        (lambda d: key_in(d).update(scale=0.25), "ar4/past_key_0_in", "scale 0.25 zero point 128"),
        (lambda d: key_in(d).update(offset=128), "ar4/past_key_0_in", "scale 0.5 zero point -128"),
        (lambda d: key_in(d).pop("scale"), "ar4/past_key_0_in", "no scale and offset"),
        (lambda d: key_in(d).update(name="past_key_9_in"), "ar4/past_key_0_in", "nothing"),
        (lambda d: d["graphs"][0]["outputs"].pop(), "ar4/past_value_1_out", "nothing"),
        (lambda d: d["graphs"][0]["inputs"].append({**key_in(d), "name": "more", "id": 99}), "ar4", "9"),
    ],
)
def test_a_tensor_that_is_not_as_the_manifest_says_is_named(quantised, change, where, found):
    def change_first_graph(document):
        if document["graphs"][0]["name"] == "ar4":
            change(document)

    fault = check_fault(quantised.run(quantised.job(prompt(), change=change_first_graph)), "TENSOR_MISMATCH")
    assert (fault.where, fault.found) == (where, found)


def test_a_binary_without_the_graph_names_those_it_has(quantised):
    job = quantised.job(prompt(), change=lambda document: document["graphs"][0].update(name="other"))
    fault = check_fault(quantised.run(job), "TENSOR_MISMATCH")
    assert (fault.found, fault.expected) == ("other", "ar4")


def test_a_job_whose_graphs_contradict_its_model_opens_no_library(quantised):
    job = quantised.job(prompt())
    job = with_libraries(dataclasses.replace(job, model=dataclasses.replace(job.model, n_kv_heads=3)), backend="/no")
    fault = check_fault(quantised.run(job), "TENSOR_MISMATCH")
    assert (fault.found, fault.expected) == ("(2, 1, 4, 15)", "(3, 1, 4, 15)")


def test_a_prompt_longer_than_the_context_is_refused_before_anything_is_opened(quantised):
    job = with_libraries(quantised.job(prompt(n_prompt=17)), backend="/no")
    fault = check_fault(quantised.run(job), "PROMPT_TOO_LONG")
    assert (fault.where, fault.found, fault.expected) == ("job.prompts[0]", "17 tokens", "at most 16")


def test_a_job_file_that_is_missing_or_no_job_is_refused(quantised, build):
    def run(text):
        path = quantised.folder / "job.json"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        done = subprocess.run(
            build.command("snapgate-runner", "--job", path, "--out", quantised.folder / "out"),
            capture_output=True,
            text=True,
            check=False,
        )
        records = [json.loads(line) for line in done.stdout.splitlines()]
        assert [record["type"] for record in records] == ["start", "error", "end"]
        assert records[1]["exit_code"] == done.returncode
        return records[1]

    assert run(None)["error"] == "FILE_MISSING"
    assert run("")["error"] == "FILE_MISSING"
    assert run('{"schema": ')["error"] == "JOB_INVALID"
    assert run('{"schema": "snapgate.job/1"}')["where"] == "job.run_id"


def test_a_crash_inside_the_library_leaves_whole_records_and_says_where(quantised):
    outcome = quantised.run(quantised.job(prompt(repetitions=2)), environment={"FAKE_QNN_CRASH": "graphExecute:8"})
    assert outcome.returncode != 0
    if quantised.build.preset == "host":  # the sanitizer turns the signal into its own report and exit code
        assert outcome.returncode == -signal.SIGSEGV
    assert "crash: signal 11 during graph execution, step 8" in outcome.stderr
    assert outcome.log.end is None
    assert outcome.log.unknown_lines == ()
    assert len(outcome.log.generations) == 1  # 3 chunks and 3 decode steps, whole; the second has no record


def test_a_crash_while_loading_says_in_which_phase(quantised):
    outcome = quantised.run(quantised.job(prompt()), environment={"FAKE_QNN_CRASH": "contextCreateFromBinary:1"})
    assert "crash: signal 11 during context_create, step 0" in outcome.stderr
    assert outcome.log.platform is not None
    assert outcome.log.end is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_signal_ends_the_run_after_the_current_step(quantised, number):
    trace = quantised.folder / "trace"
    environment = {"FAKE_QNN_DELAY": "graphExecute:50", "FAKE_QNN_TRACE": str(trace)}
    running = quantised.start(
        quantised.job(prompt(repetitions=1000), performance_mode="burst"), environment=environment
    )
    running.wait_for("generation", 2)
    running.process.send_signal(number)
    outcome = running.finish()
    check_fault(outcome, "TERMINATED")
    assert 2 <= len(outcome.log.generations) < 1000
    assert trace.read_text().splitlines()[-4:] == ["destroyPowerConfigId", "deviceFree", "backendFree", "logFree"]


def test_a_score_of_nan_logits_is_an_error_and_no_number(floating):
    score = Prompt(prompt_id="s", mode="score", tokens=(1, 2, 3), n_gen=0)
    outcome = floating.run(floating.job(score), environment={"FAKE_QNN_NAN": "1"})
    fault = check_fault(outcome, "EXECUTE_FAILED")
    assert (fault.where, fault.found) == ("prompt 's' position 0", "NaN logits")


def test_nan_logits_of_a_generation_are_kept_for_the_harness_to_judge(floating):
    outcome = floating.run(floating.job(prompt(logits=Logits.ALL)), environment={"FAKE_QNN_NAN": "1"})
    assert outcome.returncode == 0
    assert outcome.log.generations[0].token_ids == (0, 0, 0, 0)
    assert set(outcome.logits(0).view("uint16").ravel()) == {0x7E00}


def test_an_output_folder_that_cannot_be_made_is_an_error_on_stdout(quantised):
    job = quantised.job(prompt())
    (quantised.folder / "out").write_text("a file in the way")
    outcome = quantised.run(job)
    records = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [record["type"] for record in records] == ["start", "error", "end"]
    assert records[1]["error"] == "IO_FAILED"
    assert outcome.returncode == CODES["IO_FAILED"]


def limit_file_size():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))


def test_a_full_storage_is_an_error_that_names_the_file(quantised):
    quantised.vocabulary = 512  # 12 rows of 1024 bytes a generation: the second does not fit 16 KiB
    quantised.graphs = (quantised._graph(4), quantised._graph(1))
    outcome = quantised.run(quantised.job(prompt(logits=Logits.ALL, repetitions=3)), preexec_fn=limit_file_size)
    fault = check_fault(outcome, "IO_FAILED")
    assert fault.where.endswith("/out/logits.bin")
    assert fault.found == "File too large"
    assert len(outcome.log.generations) == 1


def test_records_that_do_not_fit_the_storage_end_the_run_and_stdout_says_why(quantised):
    outcome = quantised.run(quantised.job(prompt(repetitions=100)), preexec_fn=limit_file_size)
    assert outcome.returncode == CODES["IO_FAILED"]
    records = [json.loads(line) for line in outcome.stdout.splitlines()]
    assert [record["type"] for record in records[-2:]] == ["error", "end"]
    assert records[-2]["where"].endswith("/out/records.jsonl")
    assert outcome.log.unknown_lines == ()  # no line cut short, none glued to one


def test_a_watcher_that_goes_away_does_not_stop_the_run(quantised):
    reader, writer = os.pipe()
    os.close(reader)
    job = quantised.job(prompt())
    path = quantised.folder / "job.json"
    quantised.run(job)  # writes the job file
    done = subprocess.run(
        quantised.build.command("snapgate-runner", "--job", path, "--out", quantised.folder / "again"),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    lines = (quantised.folder / "again" / "records.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["type"] == "end"
    assert done.stderr.count("stdout is closed") == 1
