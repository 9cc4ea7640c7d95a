"""By how much drawn-in outliers understate the noise: ``_WIDER`` of harness/measure/paired.py.

Run again after a change of LOOKS, SPENT or ``estimate``: ``python benchmarks/calibrate_paired.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy import stats

from harness.measure.paired import LOOKS, SPENT, a_comes_first, estimate

N_PATHS = 2_000_000
BATCH = 40_000
N_METRICS = 6


def main() -> None:
    rng = np.random.default_rng(20260101)
    for n, spent in zip(LOOKS, SPENT, strict=True):
        found = []
        for _ in range(N_PATHS // BATCH):
            noise = estimate(rng.standard_normal((BATCH, n)), a_comes_first(n))
            found.append(np.abs(noise.harm / noise.error))
        level = spent / N_METRICS
        ratio = np.quantile(np.concatenate(found), 1 - level) / stats.t.isf(level / 2, n - 2)
        sys.stdout.write(f"{n} pairs, level {level:.2g}: {ratio:.3f}\n")


if __name__ == "__main__":
    main()
