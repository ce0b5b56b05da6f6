"""The rules of `lint`, by what they look at."""
