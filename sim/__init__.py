"""A deterministic simulator that runs the real engine under interruption."""
