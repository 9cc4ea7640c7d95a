"""The null distribution of the smallest p / weight over the looks: ``_TABLE`` of harness/measure/paired.py.

Run again after a change of LOOKS, WEIGHTS or ``estimate``: ``python benchmarks/calibrate_paired.py``.
"""

from __future__ import annotations

import sys

import numpy as np

from harness.measure.paired import LOOKS, WEIGHTS, a_comes_first, estimate

N_PATHS = 2_000_000
BATCH = 40_000
QUANTILES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 6e-1)


def main() -> None:
    rng = np.random.default_rng(20260101)
    order = a_comes_first(LOOKS[-1])
    found = []
    for _ in range(N_PATHS // BATCH):
        paths = rng.standard_normal((BATCH, LOOKS[-1]))
        smallest = np.full(BATCH, np.inf)
        for n, weight in zip(LOOKS, WEIGHTS, strict=True):
            smallest = np.minimum(smallest, estimate(paths[:, :n], order[:n]).p / weight)
        found.append(smallest)
    at = np.quantile(np.concatenate(found), QUANTILES)
    lines = [f"    ({weighted:.3e}, {p:g})," for weighted, p in zip(at, QUANTILES, strict=True)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
