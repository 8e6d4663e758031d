"""What every test gets: `tests` importable, deterministic property tests."""

import hypothesis

# A red run must be repeatable by whoever looks at it next; new examples are the slow suite's job.
hypothesis.settings.register_profile("default", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", derandomize=False, deadline=None, max_examples=2000)
hypothesis.settings.load_profile("default")
