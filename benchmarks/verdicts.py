"""How often verdicts are wrong, and how often they find what was planted: ``make bench-verdicts``.

Seeds come from the hash of the commit, so nobody could choose them after looking. Writes docs/verdict-benchmark.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import waits
from noise import MODELS, SD, Array, ar1, session
from scipy import stats

from harness.measure import paired
from harness.measure.steadiness import steadiness

ROOT = Path(__file__).resolve().parents[1]
N_METRICS = 6
BUDGET = paired.LOOKS[-1]
N_PAIRS = 12
"""Equal phone time in the comparison with other rules: 24 runs"""
EFFECTS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05)
BATCH = 4000
NO_EXTRA = "AR(1) 0"
FALSE_ALARMS = 0.01
UNLIKE = (1.0, 0.3, 0.5, 0.8, 2.0, 3.0)
"""Noise of the metrics, times that of the first: what they have in common says little"""


SIMULATED = tuple(f"benchmarks/{name}.py" for name in ("verdicts", "noise", "waits"))


def upper_bound(n_hits: int, n: int) -> float:
    """Exact (Clopper and Pearson) one-sided 95 % upper bound of a share."""
    return 1.0 if n_hits >= n else float(stats.beta.ppf(0.95, n_hits + 1, n - n_hits))


def lower_bound(n_hits: int, n: int) -> float:
    return 1.0 - upper_bound(n - n_hits, n)


def pair_harms(runs: Array) -> Array:
    """Interleaved runs (..., 2 n) to harms (..., n): B minus A of each pair."""
    arms = paired.arm_order(runs.shape[-1] // 2)
    sign = np.array([1.0 if arms[i] == "A" else -1.0 for i in range(0, len(arms), 2)])
    return sign * (runs[..., 1::2] - runs[..., 0::2])


def outcomes(harms: Array) -> dict[str, int]:
    """Counts over simulated runs (n, n_metrics, n_pairs), each stopped at its first decision."""
    order = paired.a_comes_first(harms.shape[-1])
    n = len(harms)
    open_, failed, passed = np.ones(n, bool), np.zeros(n, bool), np.zeros(n, bool)
    found, early = np.zeros(n, bool), np.zeros(n, bool)
    for look in paired.looks(harms, order):
        worse = open_ & look.worse.any(axis=-1)
        fine = open_ & ~worse & look.fine.all(axis=-1)
        found |= (open_ & (look.low > 0).any(axis=-1)) | worse
        if look.n_pairs <= N_PAIRS:
            early |= worse
        failed |= worse
        passed |= fine
        open_ &= ~worse & ~fine
    counts = {"fail": failed, "early": early, "pass": passed, "inconclusive": open_, "found": found}
    return {name: int(mask.sum()) for name, mask in counts.items()}


def simulate(
    rng: np.random.Generator,
    model: str,
    n: int,
    effect: float,
    n_hit: int,
    n_metrics: int = N_METRICS,
    *,
    louder: float | Sequence[float] = 1.0,
) -> dict[str, int]:
    """The first ``n_hit`` of ``n_metrics`` metrics of B take ``effect`` longer; noise is ``louder`` times as strong,
    for all metrics or one by one."""
    total: dict[str, int] = {}
    times = np.broadcast_to(np.asarray(louder, dtype=np.float64), (n_metrics,))[:, None]
    for start in range(0, n, BATCH):
        harms = times * pair_harms(session(rng, model, min(BATCH, n - start), n_metrics, 2 * BUDGET))
        harms[:, :n_hit] += np.log1p(effect)
        for name, count in outcomes(harms).items():
            total[name] = total.get(name, 0) + count
    return total


def ours(interleaved: Array, _blocked: Array, _only_b: Array) -> Array:
    harms = pair_harms(interleaved)
    order = paired.a_comes_first(N_PAIRS)
    last = paired.looks(harms[:, None, :], order)[-1]
    return np.asarray(-np.log(np.maximum(last.p[:, 0], 1e-300)) * np.sign(last.harm[:, 0]))


def _halves(blocked: Array) -> tuple[Array, Array]:
    return blocked[:, :N_PAIRS], blocked[:, N_PAIRS:]


def mean_difference(_interleaved: Array, blocked: Array, _only_b: Array) -> Array:
    a, b = _halves(blocked)
    return np.asarray(b.mean(axis=1) - a.mean(axis=1))


def mann_whitney(_interleaved: Array, blocked: Array, _only_b: Array) -> Array:
    """The rank sum of B; ties have probability 0, and a tiny part of the mean difference makes the score continuous."""
    a, b = _halves(blocked)
    ranks = np.argsort(np.argsort(blocked, axis=1), axis=1)
    return np.asarray(ranks[:, N_PAIRS:].sum(axis=1) + 1e-3 * np.clip(b.mean(axis=1) - a.mean(axis=1), -1, 1))


def fastest_pass(_interleaved: Array, blocked: Array, _only_b: Array) -> Array:
    a, b = _halves(blocked)
    return np.asarray(b.min(axis=1) - a.min(axis=1))


def mean_and_sd(_interleaved: Array, blocked: Array, _only_b: Array) -> Array:
    a, b = _halves(blocked)
    return np.asarray((b.mean(axis=1) - a.mean(axis=1)) / (a.std(axis=1, ddof=1) + b.std(axis=1, ddof=1)))


def fixed_floor(_interleaved: Array, _blocked: Array, only_b: Array) -> Array:
    return np.asarray(only_b.mean(axis=1))


RULES: dict[str, Callable[[Array, Array, Array], Array]] = {
    "SnapGate": ours,
    "mean ± x %": mean_difference,
    "Mann-Whitney": mann_whitney,
    "fastest pass": fastest_pass,
    "mean ± sd": mean_and_sd,
    "fixed floor": fixed_floor,
}


def scores(rng: np.random.Generator, model: str, n: int, effect: float) -> dict[str, Array]:
    """Each rule's score of ``n`` sessions of 24 runs: larger is worse. One and the same noise for all rules."""
    runs = session(rng, model, n, 1, 2 * N_PAIRS)[:, 0]
    is_b = np.array([arm == "B" for arm in paired.arm_order(N_PAIRS)])
    step = np.log1p(effect)
    blocked = runs + step * (np.arange(2 * N_PAIRS) >= N_PAIRS)
    return {name: rule(runs + step * is_b, blocked, runs + step) for name, rule in RULES.items()}


def power_curves(rng: np.random.Generator, n: int) -> dict[str, dict[str, dict[str, list[float]]]]:
    """``own``: every rule tuned to 1 % in each noise model by itself; ``one``: one setting over all models together."""
    null = {model: scores(rng, model, n, 0.0) for model in MODELS}
    planted = {(model, e): scores(rng, model, n // 4, e) for model in MODELS for e in EFFECTS}
    curves: dict[str, dict[str, dict[str, list[float]]]] = {"own": {}, "one": {}}
    for rule in RULES:
        whole = float(np.quantile(np.concatenate([null[m][rule] for m in MODELS]), 1 - FALSE_ALARMS))
        for model in MODELS:
            own = float(np.quantile(null[model][rule], 1 - FALSE_ALARMS))
            for tuning, level in (("own", own), ("one", whole)):
                row = [float((planted[model, e][rule] > level).mean()) for e in EFFECTS]
                curves[tuning].setdefault(model, {})[rule] = row
    return curves


def stamps(log_gaps: Array) -> tuple[int, ...]:
    """Token stamps for gaps around 50 ms."""
    return tuple(int(at) for at in np.r_[0, np.cumsum(5e7 * np.exp(log_gaps))])


def flat_series(rng: np.random.Generator, rho: float, n_tokens: int, n: int) -> int:
    """How many of ``n`` flat series are cut."""
    series = ar1(rng, (n, n_tokens), rho, 2 * SD)
    return sum(len(found.windows) > 1 for s in series if (found := steadiness(stamps(s))) is not None)


def knees(rng: np.random.Generator, rho: float, n_tokens: int, n: int) -> tuple[int, Array, Array]:
    """Found, relative error of the time of the knee, relative error of the last speed; the knee is at 20 to 70 %, the
    slow-down 10 to 35 %, over 0 to 10 % of the tokens."""
    times, speeds, found = [], [], 0
    for series in ar1(rng, (n, n_tokens), rho, 2 * SD):
        at = int(rng.uniform(0.2, 0.7) * n_tokens)
        slower = np.log1p(rng.uniform(0.10, 0.35))
        length = max(1, int(rng.uniform(0.0, 0.1) * n_tokens))
        shape = slower * np.clip((np.arange(n_tokens) - at) / length, 0.0, 1.0)
        tokens = stamps(series + shape)
        state = steadiness(tokens)
        if state is None or state.seconds_to_throttle is None or state.steady_tps is None:
            continue
        found += 1
        times.append(abs(state.seconds_to_throttle / (tokens[at] / 1e9) - 1))
        speeds.append(abs(state.steady_tps / (20 * np.exp(-slower)) - 1))
    return found, np.array(times), np.array(speeds)


def percent(value: float, digits: int = 2) -> str:
    return f"{100 * value:.{digits}f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines] + [""]


def met(holds: bool) -> str:
    return "met" if holds else "**missed**"


def null_section(rng: np.random.Generator, n: int, say: Callable[[str], None]) -> list[str]:
    rows, hits, total = [], 0, 0
    more: list[tuple[str, str, float | Sequence[float]]] = [(model, model, 1.0) for model in MODELS]
    more += [
        (f"{NO_EXTRA}, 1.5 times as strong", NO_EXTRA, 1.5),
        (f"{NO_EXTRA}, 5 times as strong", NO_EXTRA, 5.0),
        (f"{NO_EXTRA}, unlike metrics", NO_EXTRA, UNLIKE),
        (f"{NO_EXTRA}, unlike metrics, 5 times as strong", NO_EXTRA, tuple(5 * x for x in UNLIKE)),
        (f"{NO_EXTRA}, one metric 10 times, all 5 times as strong", NO_EXTRA, (50.0, *([5.0] * (N_METRICS - 1)))),
    ]
    for label, model, louder in more:
        say(f"no difference: {label}")
        c = simulate(rng, model, n, 0.0, 0, louder=louder)
        hits, total = hits + c["fail"], total + n
        bound = upper_bound(c["fail"], n)
        shares = [percent(c["found"] / n), *(percent(c[k] / n, 1) for k in ("pass", "inconclusive"))]
        rows.append([label, str(n), str(c["fail"]), percent(c["fail"] / n), percent(bound), met(bound < 0.01), *shares])
    bound = upper_bound(hits, total)
    rows.append(["all", str(total), str(hits), percent(hits / total), percent(bound), met(bound < 0.01), "", "", ""])
    head = ["noise", "runs", "false FAIL", "share", "upper 95 % bound", "target < 1 %"]
    head += ["false interval", "PASS", "INCONCLUSIVE"]
    return [
        "## No difference",
        "",
        f"A and B are the same; {N_METRICS} metrics; extended look by look up to {BUDGET} pairs. "
        "*False interval*: the corrected interval of some metric lies above 0 at some look; 2.5 % are allowed where "
        "the comparison is precise, as a FAIL still needs an estimate of the smallest effect. *Unlike metrics*: "
        f"noise of {', '.join(f'{x:g}' for x in UNLIKE)} %.",
        "",
        *table(head, rows),
    ]


def planted_section(rng: np.random.Generator, n: int, say: Callable[[str], None]) -> list[str]:
    three, one = [], []
    cases: list[tuple[str, str, int, int, float | Sequence[float]]] = [
        (model, label, n_hit, n_metrics, 1.0)
        for model in MODELS
        for n_hit, n_metrics, label in ((1, 1, "one metric alone"), (6, 6, "6 of 6"), (1, 6, "1 of 6"))
    ]
    cases.append((NO_EXTRA, "1 of 6 unlike metrics", 1, 6, UNLIKE))
    for model, label, n_hit, n_metrics, louder in cases:
        say(f"planted slow-downs: {model}, {label}")
        aimed = model == NO_EXTRA and louder == 1.0
        c = simulate(rng, model, n, 0.03, n_hit, n_metrics, louder=louder)
        low = lower_bound(c["early"], n)
        verdict = met(c["early"] / n > 0.99) if aimed else "stated"
        three.append([model, label, percent(c["early"] / n), percent(low), percent(c["fail"] / n), verdict])
        c = simulate(rng, model, n, 0.01, n_hit, n_metrics, louder=louder)
        shares = [percent(c[k] / n, 1) for k in ("fail", "inconclusive", "pass")]
        verdict = met(c["found"] / n > 0.95) if aimed else "stated"
        found = [percent(c["found"] / n), percent(lower_bound(c["found"], n))]
        one.append([model, label, *found, *shares, verdict])
    return [
        "## A planted slow-down of 3 %",
        "",
        *table(
            ["noise", "slower", f"FAIL within {N_PAIRS} pairs", "lower bound", f"within {BUDGET}", "target > 99 %"],
            three,
        ),
        "## A planted slow-down of 1 %, the smallest effect itself",
        "",
        f"*Found*: the corrected interval excludes 0 at some look, within {BUDGET} pairs. FAIL also needs an estimate "
        "of 1 % or more, which half of all estimates of exactly 1 % miss.",
        "",
        *table(
            ["noise", "slower", "found", "lower bound", "FAIL", "INCONCLUSIVE", "PASS", "target: found > 95 %"], one
        ),
    ]


def rivals_section(rng: np.random.Generator, n: int, say: Callable[[str], None]) -> list[str]:
    say("comparison with other rules")
    curves = power_curves(rng, n)
    lines = [
        "## Against other rules, at equal phone time",
        "",
        f"One metric, {2 * N_PAIRS} runs each: SnapGate interleaves A and B, the others run A first and then B, the "
        "fixed floor runs only B against a known level. Shares of sessions where the rule calls B worse; 0 % is its "
        "false alarm. SnapGate's score is its sequential p-value, without the smallest effect.",
        "",
    ]
    for tuning, title in (
        ("one", "One setting per rule: 1 % false alarms over all noise models together"),
        ("own", "Each rule tuned to 1 % in each noise model, as if the noise were known"),
    ):
        lines += [f"### {title}", ""]
        head = ["noise", "rule", *(f"{100 * e:g} %" for e in EFFECTS)]
        rows = [
            [model, rule, *(percent(v, 1) for v in curves[tuning][model][rule])] for model in MODELS for rule in RULES
        ]
        ahead = sum(
            curves[tuning][model]["SnapGate"][i] >= max(curves[tuning][model][r][i] for r in RULES if r != "SnapGate")
            for model in MODELS
            for i, e in enumerate(EFFECTS)
            if e > 0
        )
        n_points = len(MODELS) * (len(EFFECTS) - 1)
        lines += [f"SnapGate is first or equal at {ahead} of {n_points} points.", "", *table(head, rows)]
    return lines


def steadiness_section(rng: np.random.Generator, n_flat: int, n_knees: int, say: Callable[[str], None]) -> list[str]:
    flat, knee = [], []
    for n_tokens in (300, 1000):
        for rho in (0.0, 0.5, 0.9):
            say(f"change points: {n_tokens} tokens, AR(1) {rho:g}")
            cut = flat_series(rng, rho, n_tokens, n_flat)
            bound = upper_bound(cut, n_flat)
            row = [str(n_tokens), f"{rho:g}", str(n_flat), str(cut), percent(bound), met(cut / n_flat < 0.01)]
            flat.append(row)
            found, times, speeds = knees(rng, rho, n_tokens, n_knees)
            q = [percent(float(np.quantile(x, p)), 1) for x in (times, speeds) for p in (0.5, 0.95)]
            within = [percent(float((x <= limit).sum()) / n_knees, 1) for x, limit in ((times, 0.05), (speeds, 0.02))]
            knee.append([str(n_tokens), f"{rho:g}", percent(found / n_knees, 1), *q[:2], within[0], *q[2:], within[1]])
    return [
        "## Change points and steady state",
        "",
        "Gaps between tokens with 2 % of noise, correlated from token to token.",
        "",
        "Flat series that were cut:",
        "",
        *table(["tokens", "AR(1)", "series", "cut", "upper 95 % bound", "target < 1 %"], flat),
        "Series with a planted slow-down of 10 to 35 %, at 20 to 70 % of the tokens, over 0 to 10 % of them. *Within*: "
        "share of all series, those without a knee or a steady state counted as misses.",
        "",
        *table(
            [
                "tokens",
                "AR(1)",
                "found",
                "time error, median",
                "95 %",
                "within 5 %",
                "speed error, median",
                "95 %",
                "within 2 %",
            ],
            knee,
        ),
    ]


def waits_section(rng: np.random.Generator, n: int, say: Callable[[str], None]) -> list[str]:
    say("steady state against a fixed wait")
    found = waits.compared(rng, n)
    rows, holds = [], []
    for (group, rule, times, errors), (_, _, other, apart) in zip(found[::2], found[1::2], strict=True):
        holds.append(bool(times.mean() < other.mean() and errors.std() <= apart.std()))
        for name, took, off in ((rule, times, errors), ("fixed wait", other, apart)):
            row = [group, name, str(len(took)), f"{took.mean():.0f} s", f"{np.quantile(took, 0.95):.0f} s"]
            row += [percent(float(off.std())), percent(float(off.mean()))]
            rows.append([*row, percent(float((np.abs(off) <= 0.02).mean()), 1)])
    head = ["phones", "load goes on", "n", "phone time, mean", "95 %", "sd of the speed", "bias", "within 2 %"]
    return [
        "## Until a steady state, or for a fixed time",
        "",
        "Phones that warm up and throttle under sustained load (`benchmarks/waits.py`). The thermal suite's rule looks "
        f"after every {waits.LEG} generations of {waits.N_TOKENS} tokens; the other waits for {waits.FIXED_S:.0f} s, "
        f"then measures {waits.N_MEASURED} generations. {waits.START_S:g} s are counted for each new leg.",
        "",
        f"Less phone time at equal or lower variance, all phones: {met(holds[0])}.",
        "",
        *table(head, rows),
    ]


def commit() -> tuple[str, bool]:
    """The hash of the checkout, and whether what is judged here differs from it."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607

    changed = git("diff", "--quiet", "HEAD", "--", "harness/measure", *SIMULATED).returncode != 0
    return git("rev-parse", "HEAD").stdout.strip(), changed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "verdict-benchmark.md")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the simulated runs, for a quick look")
    arguments = parser.parse_args(argv)
    digest, changed = commit()
    if not digest:
        sys.stderr.write("error: no git commit to take the seed from; next step: run in a checkout\n")
        return 21
    if changed and arguments.scale >= 1:
        sys.stderr.write(
            "error: harness/measure or the simulation differs from the commit; next step: commit, then run\n"
        )
        return 20
    started = time.monotonic()

    def say(text: str) -> None:
        sys.stdout.write(f"[bench {time.monotonic() - started:6.1f}s] {text}\n")
        sys.stdout.flush()

    def rng(part: int) -> np.random.Generator:
        return np.random.default_rng([int(digest[:16], 16), part])

    def size(n: int) -> int:
        return max(20, int(n * arguments.scale))

    body = [
        *null_section(rng(0), size(20_000), say),
        *planted_section(rng(1), size(10_000), say),
        *rivals_section(rng(2), size(20_000), say),
        *steadiness_section(rng(3), size(1_500), size(300), say),
        *waits_section(rng(4), size(3_000), say),
    ]
    head = [
        "# How good are the verdicts?",
        "",
        f"Made by `make bench-verdicts` in {time.monotonic() - started:.0f} s, at commit `{digest[:16]}`, whose hash "
        f"is the seed. Everything here is simulated: noise of {100 * SD:g} % a run (`benchmarks/noise.py`), "
        "no phone. The rule is in `harness/measure/paired.py`, change points in `harness/measure/changepoint.py`.",
        "",
        (
            "What to keep in mind: the rule was tuned (treatment of outliers, error spent on each look, error rate) "
            "while looking at runs of this benchmark. The seed is fresh, but noise models and effects are the "
            'ones it was tuned on, so these figures are no test on unseen conditions. "6 of 6" gives each metric '
            "noise of its own; on a phone metrics move together, so read it as an upper end. The rivals always "
            "run A first, then B."
        ),
        "",
    ]
    arguments.out.write_text("\n".join([*head, *body]).rstrip() + "\n", encoding="utf-8")
    say(f"wrote {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
