"""Pure functions: timing, thermal, memory, quality, statistics."""
