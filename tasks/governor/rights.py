"""Whether this process may set clocks and power limits: by reading what it is, never by trying.

The driver's kernel module lets a caller set them who has CAP_SYS_ADMIN in the machine's own user namespace, at each call
(open-gpu-kernel-modules, kernel-open/common/inc/nv-linux.h: NV_IS_SUSER). Root in a container often has not.
"""

import os
from dataclasses import dataclass
from pathlib import Path

CAP_SYS_ADMIN = 21
"""Its bit in CapEff (linux/capability.h)."""

NOBODY = 65534
"""Who owns what belongs to users that a user namespace does not know (proc(5), overflowuid)."""

RECIPE = """\
To let nightbatch set clocks and power limits, give it CAP_SYS_ADMIN and nothing else; the smallest way that fits:
  as a service      [Service] User=you, AmbientCapabilities=CAP_SYS_ADMIN, CapabilityBoundingSet=CAP_SYS_ADMIN,
                    NoNewPrivileges=yes
  from a shell      sudo setpriv --reuid=$USER --regid=$(id -g) --init-groups --inh-caps=+sys_admin \\
                    --ambient-caps=+sys_admin --bounding-set=-all,+sys_admin "$(command -v nightbatch)" run ...
  in a container    docker run --cap-add SYS_ADMIN ..., as root in it and without a user namespace of its own
Not with sudo rules for nvidia-smi: they allow far more. Without it nightbatch watches, and runs fewer sequences when the
card gets hot."""
"""The least-privilege recipe, for people; the one place that has it."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What decides: effective user and capabilities (as bits), and who owns the driver's device, None if there is none."""

    user: int
    capabilities: int
    device_owner: int | None

    @property
    def why_not(self) -> str | None:
        """Why this process may not set anything, in a line; None is that it may."""
        if not self.capabilities >> CAP_SYS_ADMIN & 1:
            who = "root here" if self.user == 0 else f"user {self.user}"
            return f"setting it needs CAP_SYS_ADMIN, which {who} has not"
        if self.device_owner == NOBODY:
            return "setting it needs root of the machine itself, and here nobody owns /dev/nvidiactl: a user namespace"
        return None


def read_rights(status: Path = Path("/proc/self/status"), device: Path = Path("/dev/nvidiactl")) -> Rights:
    """The rights of this process. Without /proc it has none that are known."""
    try:
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        capabilities = int(lines["CapEff"], 16)
    except (OSError, KeyError, ValueError):
        capabilities = 0
    try:
        owner = device.stat().st_uid
    except OSError:
        owner = None
    return Rights(os.geteuid(), capabilities, owner)
