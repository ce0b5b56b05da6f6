"""`--chunk-dict`, of commands that make layers."""

from __future__ import annotations

import click

from dsec_layers.cli.context import ReferenceType

chunk_dict_option = click.option(
    "--chunk-dict",
    "chunk_dicts",
    multiple=True,
    type=ReferenceType(),
    help="Refer to chunks of this layer or environment instead of storing them again;"
    " may be repeated.",
)
