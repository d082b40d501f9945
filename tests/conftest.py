"""What all tests share: how Hypothesis looks for counter-examples."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# A shell that starts a job in the background lets it ignore Ctrl-C, and its children, too. Tests send Ctrl-C
# to themselves and to processes of theirs, so here it means what it means at a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines are noisy, so no example is judged by its time. In CI each run draws the same examples: what fails
# there can be repeated, and new ones are looked for by fuzzing and by hand.
settings.register_profile("fencepost", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("fencepost")
