"""The agent in the sandbox: a static C program, how it is built and where it lies."""
