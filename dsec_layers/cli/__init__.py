"""The command line `dsec-layers`.

Thin commands over `dsec_layers.api`, one output for people and one for programs.
"""
