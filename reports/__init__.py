"""Renders journals as reports: views.py makes rows, render.py makes files."""
