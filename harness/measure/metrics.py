"""The one catalogue of metrics: what each counts, by which clock, with which statistic, in which unit.

Words used below: a *run* is one runner process; a *repetition* is one generation of it that is no warm-up. *Positions*
are rows of logits. *Greedy positions* are those whose argmax is a generated token: every decode step, and the last
position of a prompt. Times come from CLOCK_MONOTONIC of the phone, stamped by the runner.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from harness.measure.metric import Metric, exact, sampled
from harness.measure.suite_metrics import SUITE_METRICS
from harness.record.vocabulary import Family

__all__ = ["HEADLINE", "LOAD_PHASES", "METRICS", "THERMAL_DOMAINS", "Metric"]

LOAD_PHASES: Final = (
    "open_libraries",
    "backend",
    "device",
    "read",
    "verify",
    "context_create",
    "graph_retrieve",
    "buffers",
)
"""Phase names of ``harness.record.runner.Phase``, in the order they happen."""

THERMAL_DOMAINS: Final = ("cpu", "gpu", "npu", "skin", "battery", "ddr")

_LATENCY = (
    sampled(
        "load_ms",
        "ms",
        "lower",
        "From the start of the first load phase to the end of the last. One sample per run; median.",
    ),
    *(
        sampled(
            f"load_{phase}_ms",
            "ms",
            "lower",
            f"Time in the load phase {phase}, summed over its context binaries and graphs. One sample per run; median.",
        )
        for phase in LOAD_PHASES
    ),
    sampled(
        "ttft_ms",
        "ms",
        "lower",
        "Prompt token ids ready (generation start) to first token known. Loading and tokenizing are not in it. One "
        "sample per repetition of the longest prompt; median.",
    ),
    sampled(
        "prefill_tps",
        "tokens/s",
        "higher",
        "Real prompt tokens (padding not counted) over the time from the start of the first prefill chunk to the end "
        "of the last. One sample per repetition of the longest prompt; median.",
    ),
    sampled(
        "decode_tps",
        "tokens/s",
        "higher",
        "(n_gen - 1) / (last token - first token): the first token belongs to prefill. One sample per repetition of "
        "the longest prompt; median.",
    ),
    sampled(
        "tpot_ms",
        "ms",
        "lower",
        "Mean gap between tokens: (last token - first token) / (n_gen - 1). One sample per repetition; median.",
    ),
    *(
        sampled(
            f"itl_p{percent}_ms",
            "ms",
            "lower",
            f"{percent} % quantile (linear interpolation) of the gaps between tokens within one repetition. Gaps of "
            "one repetition are not independent, so a repetition gives one sample; median.",
        )
        for percent in (50, 90, 99)
    ),
    sampled(
        "itl_max_ms",
        "ms",
        "lower",
        "Largest gap between tokens. One sample per repetition; the value is the largest of them, without an interval.",
    ),
    sampled(
        "peak_decode_tps",
        "tokens/s",
        "higher",
        "Gaps over time in the fastest level of a repetition, which is cut where its speed changes by 3 % or more. "
        "Needs 256 gaps. One sample per repetition of the longest prompt; median.",
    ),
    sampled(
        "steady_decode_tps",
        "tokens/s",
        "higher",
        "Gaps over time in the last level of a repetition, if that level has 32 gaps and a tenth of the time, and the "
        "temperature that rose most stayed within 1 °C of its end for 60 s. One sample per repetition; median.",
    ),
    sampled(
        "tokens_to_throttle",
        "tokens",
        "higher",
        "Tokens until the speed falls by 3 % or more below the peak while a temperature rises by 2 °C or more. A "
        "repetition that never throttles counts with all its tokens; where none does, there is no figure. Median.",
    ),
)

_ROOFLINE = (
    sampled(
        "memory_gb_per_s",
        "GB/s",
        "higher",
        "Bytes (10^9) over the shortest pass in which threads on all processors together read a buffer of four times "
        "the last-level cache, at least 256 MiB; within seconds of the run's last token. One sample per run; median.",
    ),
    sampled(
        "decode_efficiency_percent",
        "percent",
        "higher",
        "Share of the memory's roof: each decode_tps sample times the bytes that a token moves at the least (weights "
        "used once, the KV cache as the graph takes it, other inputs and outputs) over memory_gb_per_s of the same "
        "run; median. Over 100 the measurement is at fault.",
    ),
    sampled(
        "prefill_efficiency_percent",
        "percent",
        "higher",
        "Share of the arch's compute: each prefill_tps sample times the operations of a token (two for each weight of "
        "a linear layer) over the peak that the SoC catalogue has for the precision; median. Over 100 the measurement "
        "is at fault. Not measured where no peak is published.",
    ),
)

_MEMORY = (
    exact(
        "peak_rss_bytes",
        "bytes",
        Family.MEMORY,
        "lower",
        "max(VmHWM, VmRSS + VmSwap) of the runner over all readings of /proc/self/status; the largest of all runs. "
        "Memory of the DSP and of other processes is not in it.",
    ),
    exact(
        "steady_rss_bytes",
        "bytes",
        Family.MEMORY,
        "lower",
        "VmRSS + VmSwap of the runner after the last generation, the model still loaded; the largest of all runs.",
    ),
    exact(
        "of_free_ram_percent",
        "percent",
        Family.MEMORY,
        "lower",
        "peak_rss_bytes of a run, and the most dma-buf memory that was read behind its descriptors, over the phone's "
        "MemAvailable just before the run; the largest of all runs. At 100 the phone has to swap or kill something.",
    ),
    exact(
        "lowest_available_bytes",
        "bytes",
        Family.MEMORY,
        "higher",
        "The least MemAvailable of the phone, read every 10 s while the runner was alive; the least of all runs.",
    ),
    exact(
        "phone_peak_bytes",
        "bytes",
        Family.MEMORY,
        "lower",
        "MemAvailable just before a run, less the least while it ran: what the run took of the whole phone, memory of "
        "the driver and of the DSP included, and whatever else happened meanwhile; the largest of all runs.",
    ),
    exact(
        "phone_steady_bytes",
        "bytes",
        Family.MEMORY,
        "lower",
        "As phone_peak_bytes, by the last reading of the runner's life; of runs with two readings or more.",
    ),
    exact(
        "kv_pool_bytes",
        "bytes",
        Family.MEMORY,
        "lower",
        "Size of the KV pool that the runner allocates once, for the full context. The largest of all runs.",
    ),
    exact(
        "heap_allocations",
        "count",
        Family.MEMORY,
        "lower",
        "Allocations of the runner's own code between the first prefill chunk and the last token, warm-ups included. "
        "The largest of all generations. Anything but 0 also voids the speed of that run.",
    ),
)

_THERMAL = tuple(
    metric
    for domain in THERMAL_DOMAINS
    for metric in (
        exact(
            f"start_{domain}_celsius",
            "celsius",
            Family.THERMAL,
            "lower",
            f"First usable reading of the run; the hottest sensor of the domain {domain}; the largest of all runs.",
        ),
        exact(
            f"peak_{domain}_celsius",
            "celsius",
            Family.THERMAL,
            "lower",
            f"Largest usable reading of any sensor of the domain {domain} in any run. Domains are never mixed.",
        ),
    )
)

_PLACEMENT = (
    exact(
        "cpu_nodes",
        "count",
        Family.PLACEMENT,
        "lower",
        "Nodes of the compiled graphs that are left to the CPU, summed over the graphs of the artifact.",
    ),
    exact(
        "epcontext_nodes_per_graph",
        "count",
        Family.PLACEMENT,
        "equal",
        "Pieces that the compiler split a graph into; 1 is whole. The graph that is furthest from 1.",
    ),
    exact(
        "dsp_arch_matches",
        "yes=1",
        Family.PLACEMENT,
        "equal",
        "1 when every context binary that was loaded names the HTP arch of the phone's SoC, else 0.",
    ),
)

_ACCURACY = (
    exact(
        "runs_completed",
        "fraction",
        Family.ACCURACY,
        "higher",
        "Share of the runs that ended without an error. An error always decides, whether a limit is set or not.",
    ),
    exact(
        "prefill_snr_db",
        "dB",
        Family.ACCURACY,
        "higher",
        "-20 log10(|x - r| / |r|) of the phone's logits x against fp32 r; median over prefill positions.",
    ),
    exact("decode_snr_db", "dB", Family.ACCURACY, "higher", "As prefill_snr_db, over decode positions."),
    exact("worst_decode_snr_db", "dB", Family.ACCURACY, "higher", "As decode_snr_db; the smallest position."),
    exact(
        "relative_l2",
        "ratio",
        Family.ACCURACY,
        "lower",
        "|x - r| / |r| of the phone's logits x against fp32 r; median over all positions.",
    ),
    exact(
        "kl_nats_mean",
        "nats",
        Family.ACCURACY,
        "lower",
        "KL(softmax(fp32) || softmax(phone)), natural logarithm; mean over all positions.",
    ),
    exact(
        "top1_agreement",
        "fraction",
        Family.ACCURACY,
        "higher",
        "Share of all positions where the phone's argmax is that of fp32.",
    ),
    exact(
        "greedy_exact_fraction",
        "fraction",
        Family.ACCURACY,
        "higher",
        "Share of the greedy positions where the phone's argmax is that of fp32. 1 means that every generated token is "
        "right.",
    ),
    exact(
        "greedy_mismatch_max_margin",
        "logits",
        Family.ACCURACY,
        "lower",
        "Largest fp32 top-2 margin (largest minus second largest logit) at a greedy position where the argmax differs; "
        "0 when none differs. Below 0.1 the model itself is undecided.",
    ),
    exact(
        "perplexity",
        "ppl",
        Family.ACCURACY,
        "lower",
        "exp(mean NLL) of the phone over the scored tokens of the held-out windows; natural logarithm.",
    ),
    exact("perplexity_fp32", "ppl", Family.ACCURACY, "lower", "As perplexity, by the fp32 graph, on the same windows."),
    exact(
        "perplexity_graph",
        "ppl",
        Family.ACCURACY,
        "lower",
        "As perplexity, by the graph that was compiled, run on the CPU, on the same windows.",
    ),
    exact(
        "perplexity_over_fp32_percent",
        "percent",
        Family.ACCURACY,
        "lower",
        "100 (perplexity / perplexity_fp32 - 1) on the windows that both scored; the interval is paired over windows "
        "and is shown, not judged: these windows are the whole population.",
    ),
    exact(
        "perplexity_over_graph_percent",
        "percent",
        Family.ACCURACY,
        "lower",
        "As perplexity_over_fp32_percent, against perplexity_graph.",
    ),
    exact(
        "three_way_snr_gap_db",
        "dB",
        Family.ACCURACY,
        "lower",
        "SNR of the compiled graph on the CPU minus SNR of the phone, both against fp32, at the same position; median "
        "over positions per phase; the larger of prefill and decode. How much further from fp32 the phone is than it "
        "has to be.",
    ),
    exact(
        "prefill_decode_identical",
        "yes=1",
        Family.ACCURACY,
        "equal",
        "1 when the prefill graph and the decode graph gave bit-identical logits for one prompt, else 0.",
    ),
    exact(
        "prompt_sensitive",
        "yes=1",
        Family.ACCURACY,
        "equal",
        "1 when different prompts gave different output, else 0. 0 always fails, and voids all speed.",
    ),
    exact(
        "non_constant_output",
        "yes=1",
        Family.ACCURACY,
        "equal",
        "1 when no generation of at least 8 tokens was one token throughout and no logits were all zero, constant or "
        "not finite, else 0. 0 always fails, and voids all speed.",
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (*_ACCURACY, *_PLACEMENT, *_LATENCY, *_ROOFLINE, *_MEMORY, *_THERMAL, *SUITE_METRICS)
    }
)

HEADLINE: Mapping[Family, str] = MappingProxyType(
    {
        Family.ACCURACY: "kl_nats_mean",
        Family.PLACEMENT: "cpu_nodes",
        Family.PERFORMANCE: "decode_tps",
        Family.MEMORY: "peak_rss_bytes",
        Family.THERMAL: "peak_skin_celsius",
        Family.POWER: "energy_per_token_mj",
    }
)
"""The metric that stands for a family of which nothing was measured."""
