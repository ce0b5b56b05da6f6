"""Say hello."""

print("hello")
