"""The client library: `DSecClient` makes sandboxes, `Sandbox` is one.

    client = DSecClient()
    await client.open()
    sandbox = await client.run_container(DSecContainerRunArgs(environment="env/demo:v1"))
    print((await sandbox.run_shell("echo hello world")).text)
    await sandbox.stop()

Needs nothing of the runtime but its values and errors.
"""

from dsec_runtime.sdk.args import DSecContainerRunArgs, DSecEnvironment
from dsec_runtime.sdk.client import DSecClient
from dsec_runtime.sdk.files import Files
from dsec_runtime.sdk.fncalls import FncallResult
from dsec_runtime.sdk.output import Output
from dsec_runtime.sdk.ports import Forward, Ports
from dsec_runtime.sdk.process import Process
from dsec_runtime.sdk.results import ExecResult
from dsec_runtime.sdk.sandbox import Sandbox
from dsec_runtime.sdk.shell import Shell

__all__ = [
    "DSecClient",
    "DSecContainerRunArgs",
    "DSecEnvironment",
    "ExecResult",
    "Files",
    "FncallResult",
    "Forward",
    "Output",
    "Ports",
    "Process",
    "Sandbox",
    "Shell",
]
