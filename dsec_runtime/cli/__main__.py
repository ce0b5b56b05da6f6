"""`python -m dsec_runtime.cli`."""

from dsec_runtime.cli.main import main

main()
