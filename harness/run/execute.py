"""Artifact + workload on a leased phone: push, run, watch, pull, parse, journal.

What is refused before anything is pushed (another HTP arch, a prompt that is too long, a missing file of this host)
is raised. From then on whatever happens ends in a ``RunRecord`` that is in the journal before this returns; a
transient fault of the lab is tried once more, and the record says why.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from harness.device.identity import confirm
from harness.device.phone import LeasedPhone
from harness.device.store import StoredFile
from harness.device.text import printable
from harness.errors import ArtifactError, HostError, InfraError, LeaseError
from harness.journal import JournalWriter
from harness.record.artifact import Artifact, ArtifactManifest, sha256_of
from harness.record.moved import BytesPerToken, bytes_per_token, operations_per_token
from harness.record.run import Cell, RunError, RunRecord
from harness.record.vocabulary import Source, Status
from harness.run.attempt import Attempt, Plan, try_once
from harness.run.host import host_snapshot, host_state
from harness.run.libraries import RuntimeFiles, runtime_files
from harness.run.watch import Sign, Watcher
from harness.run.workload import ROPE_FILE, Workload, check_workload
from harness.runtime.check import refuse_newer_artifact
from harness.soc import BY_PART


def _silent(_: object) -> None:
    pass


def execute(
    phone: LeasedPhone,
    artifact: Artifact,
    workload: Workload,
    *,
    session_id: str,
    results_dir: Path,
    journal: JournalWriter,
    progress: Callable[[str], None] = _silent,
    tell: Callable[[Sign], None] = _silent,
    runtime: RuntimeFiles | None = None,
    reconnect_s: float = 60.0,
    stands_for: Cell | None = None,
) -> RunRecord:
    """Run ``workload`` on ``phone`` and journal it; its files are in ``results_dir/runs/<run_id>/``.

    ``tell`` gets signs of life while the run goes on, from several threads. ``runtime``: runner and libraries, if not
    those that this host has for the phone's ABI. ``reconnect_s``: how long to wait for a lost phone before the second
    try. ``stands_for``: the cell that the run counts for, where the artifact is another model's (the toy graph). Raises
    ``ArtifactError``, ``UserError`` or ``HostError`` when the run cannot begin; on Ctrl-C the record is
    journalled too before the interrupt goes on.
    """
    check_artifact(artifact, phone)
    check_workload(workload, artifact.manifest)
    manifest = artifact.manifest
    if runtime is None:
        progress("checking the runner and the QNN libraries of this host")
        compiler = manifest.tools.get("qnn_build_id")
        runtime = runtime_files(phone.facts.abi, manifest.target.htp_arch, compiled_by=compiler)
        refuse_newer_artifact(artifact=manifest.name, compiler=compiler, runtime=runtime.build_id)
    started = datetime.now(UTC)
    run_id = f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    folder = results_dir / "runs" / run_id
    watcher = Watcher(
        run_id=run_id,
        serial=phone.facts.serial,
        cell=manifest.name,
        workload=workload,
        prefill_tokens=manifest.recipe.prefill_tokens,
        tell=tell,
        say=progress,
    )

    def told(text: str) -> None:
        watcher.stage(text)
        progress(text)

    plan = Plan(
        phone=phone,
        artifact=artifact,
        workload=workload,
        runtime=runtime,
        files=(*runtime.all, *_artifact_files(artifact)),
        run_id=run_id,
        folder=folder,
        progress=told,
        watcher=watcher,
    )
    began, before = time.monotonic(), host_snapshot()
    attempts, retried_because = 1, None
    attempt = Attempt()
    bytes_pushed, push_s = 0, 0.0
    try:
        while True:
            attempt = Attempt()
            _fresh(folder)
            try:
                try_once(plan, attempt, number=attempts)
            finally:
                bytes_pushed += attempt.bytes_pushed
                push_s += attempt.push_s
            if attempt.error is None or not attempt.transient or attempts == 2:
                break
            back, found = _phone_is_back(phone, attempt, reconnect_s, progress)
            if not back:
                attempt.error = replace(attempt.error, message=f"{attempt.error.message}{found}")
                break
            retried_because = f"{attempt.error.kind}: {attempt.error.message}{found}"
            attempts = 2
            progress(f"trying once more after a fault of the lab: {attempt.error.message}")
            watcher.restart()
    except BaseException as exc:
        # An interrupt, or a defect of this program: either way the model is not to blame, and the record says so.
        attempt.error = RunError(
            status=Status.INFRA, kind=type(exc).__name__, message=f"the run was broken off: {printable(str(exc), 500)}"
        )
        raise
    finally:
        record = RunRecord(
            run_id=run_id,
            session_id=session_id,
            source=Source.VIRTUAL if phone.facts.virtual else Source.PHONE,
            cell=stands_for
            or Cell(
                model=manifest.model.name,
                precision=manifest.recipe.precision,
                kv=manifest.recipe.kv,
                part=manifest.target.part,
            ),
            workload=workload.name,
            started_at=started.isoformat(timespec="milliseconds"),
            wall_s=time.monotonic() - began,
            device=replace(phone.facts, boot_id=attempt.boot_id or phone.facts.boot_id),
            conditions=attempt.conditions,
            host=host_state(before, host_snapshot()),
            artifact_id=manifest.artifact_id,
            artifact_name=manifest.name,
            epcontext_nodes=tuple(g.epcontext_nodes for c in manifest.contexts for g in c.graphs),
            cpu_nodes=tuple(g.cpu_nodes for c in manifest.contexts for g in c.graphs),
            runner_sha256=runtime.runner.sha256,
            libraries_sha256=runtime.libraries_sha256,
            job_sha256=attempt.job_sha256,
            prompt_sensitivity_expected=workload.expects_prompt_sensitivity,
            log=attempt.log,
            sensors=attempt.sensors,
            bandwidth=attempt.bandwidth,
            moved=_moved(manifest),
            operations_per_token=operations_per_token(manifest),
            files_sha256={f"runs/{run_id}/{name}": sha256_of(folder / name) for name in sorted(set(attempt.files))},
            bytes_pushed=bytes_pushed,
            push_s=push_s,
            attempts=attempts,
            retried_because=retried_because,
            defects=manifest.defects,
            error=None if attempt.error is None else replace(attempt.error, transient=attempt.transient),
        )
        watcher.over()
        journal.append(record)
    return record


def _moved(manifest: ArtifactManifest) -> BytesPerToken | None:
    has_step = any(graph.n_tokens == 1 for context in manifest.contexts for graph in context.graphs)
    return bytes_per_token(manifest) if has_step else None


def check_artifact(artifact: Artifact, phone: LeasedPhone) -> None:
    """Refuse an artifact for another HTP arch. The libraries themselves would load it and fail later, or worse, not."""
    target = artifact.manifest.target
    soc = BY_PART.get(phone.facts.part)
    if soc is None or target.htp_arch != soc.htp_arch:
        found = f"an artifact for {target.part}, HTP v{target.htp_arch}"
        marker = soc.marker if soc is not None else "the phone's SoC"
        raise ArtifactError(
            f"{artifact.manifest.name} does not fit phone {phone.facts.serial}",
            found=found,
            expected=f"HTP v{soc.htp_arch} ({soc.part})"
            if soc is not None
            else f"an SoC of the catalogue, not {phone.facts.part or 'an unknown one'}",
            next_step=f"prepare one with `snapgate prepare CHECKPOINT --soc {marker}`",
        )
    if artifact.manifest.recipe.contexts == "shared" and phone.facts.abi == "x86_64":
        raise ArtifactError(
            f"{artifact.manifest.name} does not fit phone {phone.facts.serial}",
            found="a binary whose graphs share their weights",
            expected="weights of each graph's own: Qualcomm's x86 libraries refuse shared ones",
            next_step="prepare it with --contexts separate or one for virtual phones",
        )


def _artifact_files(artifact: Artifact) -> tuple[StoredFile, ...]:
    manifest = artifact.manifest
    contexts = [(context.file, context.sha256) for context in manifest.contexts]
    rope = [(ROPE_FILE, manifest.files_sha256[ROPE_FILE])]
    return tuple(StoredFile.of(artifact.path(name), name, sha256=sha) for name, sha in (*contexts, *rope))


def _fresh(folder: Path) -> None:
    """An empty folder: files of a first attempt are never taken for those of the second."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    except OSError as exc:
        raise HostError(
            f"cannot make {folder}", found=str(exc), next_step="name a results folder that this user may write to"
        ) from exc


def _phone_is_back(
    phone: LeasedPhone, attempt: Attempt, wait_s: float, progress: Callable[[str], None]
) -> tuple[bool, str]:
    """Wait until the phone has booted, then clear away whatever of the first attempt still runs there.

    The text says, of a phone that was away, what was seen of it meanwhile: that tells an unplugged phone from one that
    rebooted, or waits for somebody.
    """
    progress(f"waiting up to {wait_s:.0f} s for phone {phone.facts.serial}")
    began = time.monotonic()
    deadline = began + wait_s
    before = attempt.boot_id or phone.facts.boot_id
    while True:
        try:
            if not phone.device.wait(deadline - time.monotonic(), seen=attempt.saw):
                return False, f"; not back after {wait_s:.0f} s: state '{next(reversed(attempt.states), 'gone')}'"
            booted = phone.device.run(["getprop", "sys.boot_completed"], timeout_s=10, what="wait for the phone")
            if booted.text.strip() == "1":
                # It may be another phone by now, or another host's: nothing of theirs is cleared away.
                now, _ = confirm(phone.device, phone.facts)
                phone.lease.renew()
                phone.store.clean()
                rebooted = now.boot_id != before
                away = (
                    rebooted or attempt.states or (attempt.error is not None and attempt.error.kind == "PhoneLostError")
                )
                return True, _returned(attempt.states, time.monotonic() - began, rebooted=rebooted) if away else ""
        except LeaseError as exc:
            return False, f"; then {exc.what}: {exc.found}"
        except InfraError as exc:
            progress(f"phone {phone.facts.serial} is not ready yet: {exc.what}")
        except HostError:
            # The adb server itself is gone; the first fault is what the record tells.
            return False, ""
        if time.monotonic() >= deadline:
            return False, f"; not usable again after {wait_s:.0f} s"
        time.sleep(0.5)


def _returned(states: Iterable[str], after_s: float, *, rebooted: bool) -> str:
    how = f"back after {after_s:.1f} s" + "".join(f", {state}" for state in states)
    return f"; {how}: it {'had rebooted' if rebooted else 'had not rebooted'}"
