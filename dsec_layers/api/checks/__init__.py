"""Rules about compositions, one a module: pure functions from a `Case` to findings.

`dsec_layers.api.checking` opens the layers and asks all of them.
"""
