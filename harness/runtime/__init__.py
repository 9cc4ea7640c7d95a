"""Qualcomm's libraries for a phone: which are needed, where they come from, whether they belong together."""
