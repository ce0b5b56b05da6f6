"""Sandboxes: a composed environment in an isolation tier, on one node.

    spec -> channel -> {resources, network} -> tiers -> edge; sdk and cli speak to the edge by HTTP

What makes, stores and mounts environments is `dsec_layers`, whose public face is used here.
"""
