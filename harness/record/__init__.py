"""What is written down: artifacts, runs, comparisons and verdicts, and the schema shared with ``device_runtime``."""
