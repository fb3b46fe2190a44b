"""How our processes speak DDS where nobody has said otherwise: without type lookup, and by UDP beside a control loop.

Fast DDS 3.2 asks other processes what their types look like, which ROS has no use for; a race in that service
(`TypeLookupManager::notify_callbacks`) ended a process of ours once in a thousand starts.

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
NO_TYPE_LOOKUP = ("config", "dds", "no_type_lookup.xml")


def choose_no_type_lookup(environment: MutableMapping[str, str]) -> str:
    """Set the environment before ROS is initialised; returns the profile that was chosen, "" where it was left alone.

    It is left alone for another RMW, and where the user has chosen a profile.
    """
    profile: Path = share(*NO_TYPE_LOOKUP)
    if not _fast_dds(environment) or any(environment.get(name) for name in PROFILES) or not profile.is_file():
        return ""
    environment[PROFILES[0]] = str(profile)
    return str(profile)


def choose_udp(environment: MutableMapping[str, str]) -> str:
    """Set the environment before ROS is initialised; returns what was chosen, "" where it was left alone.

    It is left alone for another RMW, and where the user has chosen transports or a profile: with LARGE_DATA everybody
    must speak TCP. Discovery stays within this host where it was asked to (LOCALHOST, for which rmw_fastrtps always
    brings shared memory): a profile does the same by UDP.
    """
    chosen = {environment.get(name) for name in (TRANSPORTS, *PROFILES)} - {None, "", str(share(*NO_TYPE_LOOKUP))}
    if not _fast_dds(environment) or chosen:
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


def _fast_dds(environment: MutableMapping[str, str]) -> bool:
    return environment.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp").startswith("rmw_fastrtps")
