"""Journals to measurements, verdicts and tables. Needs no phone and no model."""
