"""How many examples property tests draw, where the profile's number would take too long."""

from hypothesis import settings

# For trees, of which an example costs milliseconds to draw: a third of what the profile says.
fewer = settings(max_examples=settings().max_examples // 3)
