"""Finds, without running a model, what makes it wrong or slow on an HTP."""
