"""The `dsec` command line."""
