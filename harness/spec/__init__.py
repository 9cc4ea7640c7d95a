"""What people write in TOML, checked once and then frozen."""
