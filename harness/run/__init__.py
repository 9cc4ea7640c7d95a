"""Artifact and workload to job, run under a deadline, record and journal entry."""
