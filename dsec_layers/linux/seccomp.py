"""System calls that no build step or command in an environment needs, refused with EPERM.

They are not confined by namespaces or would give back what the container's limits take away.
"""

from __future__ import annotations

import errno
import platform

from dsec_layers.linux.json_types import JsonObject

_REFUSED = (
    *("acct", "add_key", "bpf", "delete_module", "finit_module", "init_module", "kcmp"),
    *("kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "nfsservctl"),
    *("open_by_handle_at", "perf_event_open", "quotactl", "quotactl_fd", "reboot", "request_key"),
    *("setns", "swapoff", "swapon", "uselib", "userfaultfd", "vmsplice"),
)
_CLONE_NEWUSER = 0x10000000
_TIOCSTI = 0x5412  # types into the caller's terminal

_ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
}


def profile() -> JsonObject:
    """The `linux.seccomp` object of an OCI runtime configuration."""
    rules: list[JsonObject] = [
        _refuse(*_REFUSED),
        # A user namespace would bring back all capabilities within it.
        _refuse("unshare", argument=0, mask=_CLONE_NEWUSER),
        _refuse("clone", argument=0, mask=_CLONE_NEWUSER),
        # Its flags lie in memory and cannot be judged; libc falls back to clone.
        {**_refuse("clone3"), "errnoRet": errno.ENOSYS},
        _refuse("ioctl", argument=1, mask=0xFFFFFFFF, value=_TIOCSTI),
    ]
    found: JsonObject = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}
    if architectures := _ARCHITECTURES.get(platform.machine()):
        found["architectures"] = architectures
    return found


def _refuse(*names: str, argument: int = 0, mask: int = 0, value: int | None = None) -> JsonObject:
    rule: JsonObject = {
        "names": list(names),
        "action": "SCMP_ACT_ERRNO",
        "errnoRet": errno.EPERM,
    }
    if mask:
        wanted = mask if value is None else value
        condition: JsonObject = {
            "index": argument,
            "value": mask,
            "valueTwo": wanted,
            "op": "SCMP_CMP_MASKED_EQ",
        }
        rule["args"] = [condition]
    return rule
