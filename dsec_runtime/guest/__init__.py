"""The agent that is the first process of a sandbox, and its binary."""
