"""The host's end of the guest agent: docs/formats/guest-protocol.md in asyncio."""

from dsec_runtime.channel.channel import Channel, Command
from dsec_runtime.channel.process import Output, Process

__all__ = ["Channel", "Command", "Output", "Process"]
