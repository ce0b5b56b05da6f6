"""`python -m dsec_layers.cli`."""

from dsec_layers.cli.main import main

main()
