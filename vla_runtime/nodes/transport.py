"""Which DDS transport a process with a control loop speaks: UDP, where nobody has said otherwise.

The shared-memory transport of Fast DDS has locks that processes share and that know no priorities: a subscriber that
is not scheduled while it holds one stops a real-time publisher in ``publish``. Measured with both cores overloaded
(load 14 to 20), SCHED_FIFO, 50 Hz: ticks of up to 1 s with shared memory, 1.4 ms with UDP. Messages of control are
small, so UDP costs nothing; cameras and policy keep shared memory.
"""

from collections.abc import MutableMapping
from pathlib import Path

from vla_runtime.paths import share

RANGE, TRANSPORTS = "ROS_AUTOMATIC_DISCOVERY_RANGE", "FASTDDS_BUILTIN_TRANSPORTS"
PROFILES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
LOOPBACK = ("config", "dds", "loopback_udp.xml")


def choose_udp(environment: MutableMapping[str, str]) -> str:
    """Set the environment before ROS is initialised; returns what was chosen, "" where it was left alone.

    It is left alone for another RMW, and where the user has chosen transports or a profile: with LARGE_DATA everybody
    must speak TCP. Discovery stays within this host where it was asked to (LOCALHOST, for which rmw_fastrtps always
    brings shared memory): a profile does the same by UDP.
    """
    if not environment.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp").startswith("rmw_fastrtps"):
        return ""
    if any(environment.get(name) for name in (TRANSPORTS, *PROFILES)):
        return ""
    if environment.get(RANGE) == "LOCALHOST":
        profile: Path = share(*LOOPBACK)
        if not profile.is_file():
            return ""
        environment[RANGE] = "SYSTEM_DEFAULT"
        environment[PROFILES[0]] = str(profile)
        return str(profile)
    environment[TRANSPORTS] = "UDPv4"
    return "UDPv4"
