"""The build hook of the package: compiles the guest agent, which wheels and checkouts carry."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AgentBuildHook(BuildHookInterface[Any]):
    """Makes `dsec_runtime/guest/dsec-agent`, a static program for this machine's architecture."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel as one for this platform. Fails without a C compiler."""
        root = Path(self.root)
        sys.path.insert(0, str(root))
        try:
            from dsec_runtime.guest import build
        finally:
            sys.path.remove(str(root))
        binary = build.build()
        build_data["artifacts"].append(str(binary.relative_to(root)))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
