"""The host's end of the connection to the agent in a sandbox."""
