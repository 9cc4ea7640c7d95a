"""What every subcommand needs of argparse."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeAlias

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def printer(prefix: str) -> Callable[[str], None]:
    """A progress function that prints each line with the seconds since it was made."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{prefix} {time.monotonic() - started:5.1f}s] {text}", flush=True)

    return say
