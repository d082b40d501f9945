"""What all tests share: how Hypothesis looks for counter-examples."""

from __future__ import annotations

import os

from hypothesis import settings

# Machines are noisy, so no example is judged by its time. In CI each run draws the same examples: what fails
# there can be repeated, and new ones are looked for by fuzzing and by hand.
settings.register_profile("fencepost", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("fencepost")
