"""How much the running profile asks for, where the profile's number of examples does not fit."""

import os

from hypothesis import settings

# Many more inputs, and larger ones.
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

# For trees, of which an example costs milliseconds to draw: a sixth of what the profile says.
fewer = settings(max_examples=settings().max_examples // 6)

# For several trees an example.
fewest = settings(max_examples=settings().max_examples // 12)
