"""A workload: the prompts of one run, and the job file that asks the runner for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

from harness.device.changes import Change
from harness.device.fitness import PROCEED, Demand
from harness.errors import ArtifactError, UserError
from harness.record.artifact import Artifact, ArtifactManifest
from harness.record.job import DEFAULT_OPTIONS, JOB_SCHEMA, Job, JobContext, JobLibraries, JobModel, Prompt, RunOptions

ROPE_FILE = "rope.bin"
_WATCHDOG_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``deadline_s``: for the whole runner process. ``stall_s``: for the next line of it.

    Without ``options.watchdog_s`` the runner's own watchdog gets most of ``stall_s``: a hung call is then reported by
    the runner, with its phase and step, before this host loses patience.
    """

    name: str
    prompts: tuple[Prompt, ...]
    performance_mode: str = "burst"
    deadline_s: float = 600.0
    stall_s: float = 300.0
    options: RunOptions = DEFAULT_OPTIONS
    demand: Demand = PROCEED
    """What is done when the phone is not fit to be measured"""
    changes: tuple[Change, ...] = ()
    """Set on the phone before the run, and put back after it"""
    bandwidth: bool = False
    """Whether the memory's bandwidth is measured right after the run"""

    @property
    def expects_prompt_sensitivity(self) -> bool:
        """Whether two prompts differ, are generated from alike, and so must differ in their output."""
        generated = {prompt.tokens for prompt in self.prompts if prompt.mode == "generate" and not prompt.forced}
        return len(generated) > 1

    @property
    def n_generations(self) -> int:
        """Generation records that a complete run has: repetitions and warm-ups of every prompt."""
        return sum(prompt.repetitions + prompt.warmups for prompt in self.prompts)


def check_workload(workload: Workload, manifest: ArtifactManifest) -> None:
    """Refuse what the artifact cannot do, before anything is pushed."""
    if manifest.runner_lacks is not None:
        raise ArtifactError(
            f"the native runner does not run {manifest.name}",
            found=manifest.runner_lacks,
            next_step="prepare it in the form the runner takes; for other runtimes the artifact is complete as it is",
        )
    if not workload.prompts:
        raise UserError(f"workload {workload.name} has no prompt", expected="at least one")
    names = [prompt.prompt_id for prompt in workload.prompts]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise UserError(f"workload {workload.name} names prompts twice", found=", ".join(twice))
    context, vocabulary = manifest.recipe.context_length, manifest.model.vocab_size
    depth = 0
    """Tokens in the cache when a prompt is over, at most"""
    for prompt in workload.prompts:
        what = f"prompt {prompt.prompt_id} of workload {workload.name}"
        # The last generated token is never fed back, so it needs no place in the cache.
        before = depth + 1 if prompt.keep_cache else prompt.n_cached
        needed = before + len(prompt.tokens) + max(prompt.n_gen - 1, 0)
        depth = needed
        if not prompt.tokens:
            raise UserError(f"{what} is empty", expected="at least one token")
        if needed > context:
            raise UserError(
                f"{what} is longer than the context of {manifest.name}",
                found=f"{len(prompt.tokens)} tokens and {prompt.n_gen} to generate"
                + (f", behind {before} in the cache" if before else ""),
                expected=f"at most {context} in all",
                next_step="shorten the prompt, generate less, or prepare the model with a larger --context",
            )
        _check_combination(prompt, what, is_first=prompt is workload.prompts[0])
        foreign = [token for token in (*prompt.tokens, *prompt.forced, *prompt.stop_ids) if not 0 <= token < vocabulary]
        if foreign:
            raise UserError(
                f"{what} has token ids that {manifest.name} does not have",
                found=", ".join(map(str, foreign[:5])),
                expected=f"0 to {vocabulary - 1}",
                next_step="tokenize with the artifact's own tokenizer.json",
            )


def _check_combination(prompt: Prompt, what: str, *, is_first: bool) -> None:
    if prompt.keep_cache and (is_first or prompt.warmups or prompt.repetitions != 1 or prompt.n_cached):
        raise UserError(
            f"{what} cannot keep the cache",
            found="the first prompt" if is_first else "warm-ups, repetitions or n_cached of its own",
            expected="a further round: once, after another prompt",
            next_step="list the whole dialogue once more to repeat it",
        )
    if prompt.mode == "score" and (prompt.keep_cache or prompt.n_cached or prompt.sampling is not None):
        raise UserError(
            f"{what} is scored, which starts with an empty cache and draws nothing",
            found="keep_cache, n_cached or sampling",
            expected="none of them",
        )
    if prompt.sampling is not None and prompt.forced:
        raise UserError(f"{what} has forced tokens and draws tokens", expected="one of the two")


def make_job(workload: Workload, artifact: Artifact, *, run_id: str, nonce: str, run_folder: PurePosixPath) -> Job:
    manifest = artifact.manifest
    model = manifest.model
    return Job(
        schema=JOB_SCHEMA,
        run_id=run_id,
        nonce=nonce,
        libraries=JobLibraries(
            backend=run_folder / "libs" / "libQnnHtp.so", system=run_folder / "libs" / "libQnnSystem.so"
        ),
        performance_mode=workload.performance_mode,
        model=JobModel(
            n_layers=model.n_layers,
            n_kv_heads=model.n_kv_heads,
            head_dim=model.head_dim,
            vocab_size=model.vocab_size,
            context_length=manifest.recipe.context_length,
            mask_value=manifest.recipe.mask_value,
            eos_ids=model.eos_ids,
            soc_number=manifest.target.soc_number,
            htp_arch=manifest.target.htp_arch,
            rope_table=run_folder / ROPE_FILE,
            rope_sha256=manifest.files_sha256[ROPE_FILE],
        ),
        contexts=tuple(
            JobContext(
                path=run_folder / context.file, sha256=context.sha256, n_bytes=context.n_bytes, graphs=context.graphs
            )
            for context in manifest.contexts
        ),
        prompts=workload.prompts,
        options=_with_watchdog(workload),
    )


def _with_watchdog(workload: Workload) -> RunOptions:
    if workload.options.watchdog_s is not None:
        return workload.options
    return replace(workload.options, watchdog_s=_WATCHDOG_SHARE * workload.stall_s)
