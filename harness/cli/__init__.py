"""The snapgate command."""
