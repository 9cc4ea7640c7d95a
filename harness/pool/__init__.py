"""Many phones: which are attached, which one a cell may have."""
