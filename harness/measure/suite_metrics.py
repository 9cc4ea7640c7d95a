"""Metrics of the suites that make runs of their own: smoke, sweep, edges, idle, sustained, power and endurance.

All are ``optional``: a session that did not ask for such a suite lacks nothing. A *round* of endurance is one runner
process: load, some dialogues, unload. Slopes are Theil-Sen medians of pairwise slopes with their 95 % interval
(``harness.measure.trend``).
"""

from __future__ import annotations

from typing import Final

from harness.measure.metric import Metric, exact, sampled
from harness.record.vocabulary import Family

RUNGS: Final = ("libraries", "device", "toy_graph", "shard", "token")
"""Of the smoke ladder, lowest first."""
LENGTHS: Final = (1, 16, 31, 64, 128, 256, 512, 1024, 2048)
"""Prompt tokens of the sweep; those that the context holds."""
DEPTHS: Final = (0, 64, 128, 256, 512, 1024, 1920)
"""Tokens in the cache of the sweep; those that the context holds."""
PAUSES: Final = (0, 1, 5, 20)
"""Seconds at rest before a request."""
RISE_DOMAINS: Final = ("cpu", "npu", "skin", "battery")

_RUNG_TEXT: Final = {
    "libraries": "the QNN libraries were loaded and name themselves",
    "device": "the HTP device was opened",
    "toy_graph": "a model of one layer, made for this, gave the tokens that the host's fp32 graph gives",
    "shard": "the first context binary of the artifact was made into a context",
    "token": "the artifact generated one token",
}

_SMOKE = tuple(
    exact(
        f"smoke_{rung}",
        "yes=1",
        Family.PLACEMENT,
        "equal",
        f"Rung {number} of the smoke ladder: 1 when {_RUNG_TEXT[rung]}, else 0. Above the first rung that failed "
        "nothing is measured.",
        optional=True,
    )
    for number, rung in enumerate(RUNGS, 1)
)

_CANARY = (
    sampled(
        "canary_tps",
        "tokens/s",
        "higher",
        "Decode speed of the toy graph of the smoke ladder, as decode_tps: the same work on every phone of a SoC in "
        "every session, so it tells of the phone and not of the model. One sample per repetition; median.",
        optional=True,
    ),
)

_ACCURACY = (
    exact(
        "edge_snr_db",
        "dB",
        Family.ACCURACY,
        "higher",
        "SNR against fp32 at the last position of prompts of 1, N-1, N, N+1, 2N and context-length tokens (N: tokens "
        "of the prefill graph); the smallest. A prompt of 1 or N+1 tokens leaves all but one row of its chunk padding.",
        optional=True,
    ),
    exact(
        "long_position_snr_db",
        "dB",
        Family.ACCURACY,
        "higher",
        "SNR against fp32 over the last quarter of a prompt that fills the context; median. Wrong position tables show "
        "here first.",
        optional=True,
    ),
    exact(
        "deterministic",
        "yes=1",
        Family.ACCURACY,
        "equal",
        "1 when every repetition of a prompt within a run, warm-ups included, gave the same tokens and the same NLL to "
        "the bit, else 0. Of all runs that repeat a prompt.",
        optional=True,
    ),
    exact(
        "task_score",
        "fraction",
        Family.ACCURACY,
        "higher",
        "Share of the items of the model's task sets that the phone got right: multiple choice by the largest summed "
        "log-likelihood of the choice, or exact match of greedy tokens. Its interval (Wilson) is shown.",
        optional=True,
    ),
    exact(
        "task_chance",
        "fraction",
        Family.ACCURACY,
        "higher",
        "What guessing scores on the same items: mean of 1 / number of choices; 0 for exact match.",
        optional=True,
    ),
    exact(
        "task_score_fp32",
        "fraction",
        Family.ACCURACY,
        "higher",
        "As task_score, by the fp32 graph on the host, on the same items.",
        optional=True,
    ),
    exact(
        "changed_answers",
        "count",
        Family.ACCURACY,
        "lower",
        "Generations of an endurance suite whose tokens differ from those of the first dialogue at the same turn: "
        "every dialogue says the same.",
        optional=True,
    ),
)

_SWEEP = (
    *(
        metric
        for n in LENGTHS
        for metric in (
            sampled(f"ttft_at_{n}_ms", "ms", "lower", f"As ttft_ms, prompt of {n} tokens, empty cache.", optional=True),
            sampled(
                f"prefill_tps_at_{n}",
                "tokens/s",
                "higher",
                f"As prefill_tps, prompt of {n} tokens. Not measured where they do not fill the graph once: 16 and 31 "
                "tokens take the same time through a 32-token graph, which is padding and no speed-up.",
                optional=True,
            ),
        )
    ),
    *(
        sampled(
            f"decode_tps_at_depth_{n}",
            "tokens/s",
            "higher",
            f"As decode_tps, with {n} tokens in the cache at the start.",
            optional=True,
        )
        for n in DEPTHS
    ),
    exact(
        "longest_text_tokens",
        "tokens",
        Family.PERFORMANCE,
        "higher",
        "Most tokens of one sequence at the end of a generation: cached, prompt and generated ones, the last of which "
        "need not fit the cache. The sweep asks for the whole context first; where a run of that fails, for lengths by "
        "bisection, to within one prefill chunk.",
        optional=True,
    ),
    sampled(
        "tpot_after_idle_ms",
        "ms",
        "lower",
        "Mean time of a decode step that comes 2 s after the one before: (last - first token - time held back) / "
        "(n_gen - 1). One sample per repetition; median.",
        optional=True,
    ),
    *(
        sampled(
            f"ttft_after_{n}_s_ms",
            "ms",
            "lower",
            f"As ttft_ms, prompt of 8 tokens, {n} s after the generation before ended: the model stays loaded, and "
            "nothing is asked of the phone meanwhile.",
            optional=True,
        )
        for n in PAUSES
    ),
    *(
        exact(
            f"{phase}_cycles",
            "cycles",
            Family.PERFORMANCE,
            "lower",
            f"Cycles of the HTP that the library counts for the operators of one {text}, summed; of the last execution "
            "of the graph, median over repetitions. Profiling slows the phone down: never judged.",
            optional=True,
        )
        for phase, text in (("prefill", "prefill chunk"), ("decode", "decode step"))
    ),
    sampled(
        "load_first_ms",
        "ms",
        "lower",
        "As load_ms, of runs that had to copy files to the phone or were the first since it booted. The copy itself is "
        "copy_ms. One sample per run; median.",
        optional=True,
    ),
    sampled(
        "load_again_ms", "ms", "lower", "As load_ms, of all other runs: the files may lie in memory.", optional=True
    ),
    exact(
        "copy_ms",
        "ms",
        Family.PERFORMANCE,
        "lower",
        "Time to copy what the phone lacked, by the host's clock, hashing on the phone included; the largest of all "
        "runs that copied.",
        optional=True,
    ),
)

_SUSTAINED = (
    sampled(
        "first_300_tps",
        "tokens/s",
        "higher",
        "As decode_tps, over the first 300 tokens of a sustained suite, or as many as its first generation has.",
        optional=True,
    ),
    sampled(
        "sustained_peak_tps",
        "tokens/s",
        "higher",
        "decode_tps of the fastest generation of a sustained suite; its samples are all generations, its interval that "
        "of the three fastest.",
        optional=True,
    ),
    sampled(
        "sustained_tps",
        "tokens/s",
        "higher",
        "decode_tps over the generations since the last change of speed (3 % or more) of a sustained suite; median. "
        "Needs 3 such generations.",
        optional=True,
    ),
    exact(
        "seconds_to_throttle",
        "s",
        Family.PERFORMANCE,
        "higher",
        "From the first token of a sustained suite to the first generation that is 3 % or more slower than the fastest "
        "before it and never recovers, while a temperature rose by 2 °C or more. Where none is, there is no figure.",
        optional=True,
    ),
    exact(
        "tokens_to_throttle",
        "tokens",
        Family.PERFORMANCE,
        "higher",
        "Tokens generated before the generation at which seconds_to_throttle ends.",
        optional=True,
    ),
    exact(
        "recovery_s",
        "s",
        Family.THERMAL,
        "lower",
        "From the end of a sustained suite until the sensor that rose most is back within 1 °C of its first reading, "
        "while the loaded model rests.",
        optional=True,
    ),
    *(
        exact(
            f"{prefix}rise_{domain}_celsius",
            "celsius",
            Family.THERMAL,
            "lower",
            f"Hottest reading of the domain {domain} minus the first one, {text}; the largest of all runs.",
            optional=True,
        )
        for prefix, text in (("", "over a sustained suite"), ("paced_", "over a suite held to 70 % of its speed"))
        for domain in RISE_DOMAINS
    ),
    sampled(
        "paced_tps",
        "tokens/s",
        "higher",
        "As decode_tps, of the run that is held to 70 % of the sustained speed.",
        optional=True,
    ),
)

_POWER = (
    sampled(
        "energy_per_token_mj",
        "mJ",
        "lower",
        "Battery current times voltage, integrated (trapezoid) from the first to the last token of a generation, less "
        "the mean power of the idle run over the same time, over the tokens. One sample per generation; median. Not "
        "measured on external power or without the battery's sensors.",
        family=Family.POWER,
        optional=True,
    ),
    sampled(
        "idle_mw",
        "mW",
        "lower",
        "Battery power while the loaded model rests, in the second half of the idle run; one sample per 5 s; median.",
        family=Family.POWER,
        optional=True,
    ),
    exact(
        "return_to_idle_s",
        "s",
        Family.POWER,
        "lower",
        "From the end of a sustained suite until battery power stays within 10 % of the idle run's end.",
        optional=True,
    ),
)

_ENDURANCE = (
    exact(
        "endurance_rounds",
        "count",
        Family.PERFORMANCE,
        "higher",
        "Rounds (load, dialogues, unload) that ended without an error.",
        optional=True,
    ),
    *(
        sampled(name, unit, "lower", f"Theil-Sen slope of {text}.", family=family, optional=True)
        for name, unit, family, text in (
            ("rss_growth_per_round", "bytes", Family.MEMORY, "the runner's peak memory over rounds of the same length"),
            (
                "rss_growth_per_dialogue",
                "bytes",
                Family.MEMORY,
                "the runner's memory (end less after loading) over the number of dialogues in a process",
            ),
            ("free_memory_loss_per_round", "bytes", Family.MEMORY, "the phone's lost free memory over rounds"),
            (
                "slowdown_per_round",
                "percent",
                Family.PERFORMANCE,
                "the median time per token over rounds of the same length",
            ),
            ("load_slowdown_per_round", "percent", Family.PERFORMANCE, "load_ms, one sample per round, over rounds"),
        )
    ),
)

SUITE_METRICS: Final[tuple[Metric, ...]] = (*_ACCURACY, *_SMOKE, *_CANARY, *_SWEEP, *_SUSTAINED, *_POWER, *_ENDURANCE)
