"""Simulated phones for the benchmark of verdicts. A series is ln(time of a run) around the phone's own level."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

SD = 0.01
"""Of one run: 1 %"""
SESSION_SD = 0.01
"""From session to session; the same for both arms, so it matters only to a fixed floor."""
Array = NDArray[np.float64]
Disturbance = Callable[[np.random.Generator, int, int], Array]


def ar1(rng: np.random.Generator, shape: tuple[int, ...], rho: float, sd: float = SD) -> Array:
    """Stationary AR(1) along the last axis, of standard deviation ``sd``."""
    steps = rng.standard_normal((*shape[:-1], shape[-1] + 100)) * sd * np.sqrt(1 - rho**2)
    return np.asarray(lfilter([1.0], [1.0, -rho], steps, axis=-1))[..., 100:]


def _none(rng: np.random.Generator, n_sessions: int, n: int) -> Array:  # noqa: ARG001
    return np.zeros((n_sessions, n))


def _drift(rng: np.random.Generator, n_sessions: int, n: int) -> Array:
    """A straight line, up or down by 5 % over the session."""
    return rng.choice([-0.05, 0.05], (n_sessions, 1)) * np.linspace(0.0, 1.0, n)


def _steps(rng: np.random.Generator, n_sessions: int, n: int) -> Array:
    """One step of 5 %, up or down, somewhere."""
    return rng.choice([-0.05, 0.05], (n_sessions, 1)) * (np.arange(n) >= rng.integers(0, n, (n_sessions, 1)))


def _outliers(rng: np.random.Generator, n_sessions: int, n: int) -> Array:
    """One run in twenty takes 20 to 50 % longer."""
    return np.log1p(rng.uniform(0.2, 0.5, (n_sessions, n))) * (rng.random((n_sessions, n)) < 0.05)


def _throttling(rng: np.random.Generator, n_sessions: int, n: int) -> Array:
    """From somewhere in the first half on 25 % slower, over 6 runs."""
    return np.log1p(0.25) * np.clip((np.arange(n) - rng.integers(0, n // 2, (n_sessions, 1))) / 6, 0.0, 1.0)


MODELS: Mapping[str, tuple[float, Disturbance]] = MappingProxyType(
    {
        "AR(1) 0": (0.0, _none),
        "AR(1) 0.5": (0.5, _none),
        "AR(1) 0.9": (0.9, _none),
        "drift": (0.0, _drift),
        "steps": (0.0, _steps),
        "outliers": (0.0, _outliers),
        "throttling": (0.0, _throttling),
    }
)
"""Name to the correlation of neighbouring runs and what comes on top."""


def session(rng: np.random.Generator, model: str, n_sessions: int, n_metrics: int, n_runs: int) -> Array:
    """(n_sessions, n_metrics, n_runs) in the order of time. What comes on top hits all metrics of a run alike."""
    rho, disturbance = MODELS[model]
    noise = ar1(rng, (n_sessions, n_metrics, n_runs), rho)
    level = SESSION_SD * rng.standard_normal((n_sessions, 1, 1))
    return noise + disturbance(rng, n_sessions, n_runs)[:, None, :] + level
