"""What a control process does to its environment before DDS is there."""

import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from vla_runtime.nodes.transport import choose_no_type_lookup, choose_udp


def test_udp_by_default():
    environment = {}
    assert choose_udp(environment) == "UDPv4"
    assert environment == {"FASTDDS_BUILTIN_TRANSPORTS": "UDPv4"}


def test_this_host_only_stays_this_host_only():
    environment = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    profile = choose_udp(environment)
    assert environment == {
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SYSTEM_DEFAULT",
        "FASTDDS_DEFAULT_PROFILES_FILE": profile,
    }
    root = ElementTree.parse(profile).getroot()
    texts = [(element.tag.rpartition("}")[2], (element.text or "").strip()) for element in root.iter()]
    assert [text for tag, text in texts if tag == "type"] == ["UDPv4"]
    assert {text for tag, text in texts if tag == "address"} == {"127.0.0.1"}
    assert ("useBuiltinTransports", "false") in texts


@pytest.mark.parametrize(
    "environment",
    [
        {"FASTDDS_BUILTIN_TRANSPORTS": "LARGE_DATA"},
        {"FASTDDS_DEFAULT_PROFILES_FILE": "/mine.xml", "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"},
        {"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"},
    ],
)
def test_what_the_user_chose_is_left_alone(environment):
    before = dict(environment)
    assert choose_udp(environment) == ""
    assert environment == before


def test_no_type_lookup_and_yet_udp():
    environment = {}
    profile = choose_no_type_lookup(environment)
    assert environment == {"FASTDDS_DEFAULT_PROFILES_FILE": profile}
    assert choose_udp(environment) == "UDPv4"  # what a parent process of ours has chosen is not the user's choice
    assert environment["FASTDDS_DEFAULT_PROFILES_FILE"] == profile


@pytest.mark.parametrize(
    "environment", [{"FASTDDS_DEFAULT_PROFILES_FILE": "/mine.xml"}, {"RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp"}]
)
def test_a_profile_of_the_users_is_left_alone(environment):
    before = dict(environment)
    assert choose_no_type_lookup(environment) == ""
    assert environment == before


SPEAK = """
import os, time
from vla_runtime.nodes.transport import choose_no_type_lookup, choose_udp
if "udp" in os.environ["TEST_CHOICE"]:
    choose_udp(os.environ)
choose_no_type_lookup(os.environ)
import rclpy
rclpy.init()
node = rclpy.create_node("threads")
print(*(open(f"/proc/self/task/{thread}/comm").read().strip() for thread in os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("reach", ["SUBNET", "LOCALHOST"])
@pytest.mark.parametrize("choice", ["default", "udp"])
def test_fast_dds_does_as_it_was_told(choice, reach):
    """By its threads: none looks types up; and the control processes have none for shared memory."""
    environment = {**os.environ, "TEST_CHOICE": choice, "ROS_AUTOMATIC_DISCOVERY_RANGE": reach}
    for name in ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTDDS_BUILTIN_TRANSPORTS"):
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", SPEAK], env=environment, capture_output=True, text=True, timeout=60)
    threads = done.stdout.split()
    assert [name for name in threads if name.startswith("dds.udp")], done.stderr
    assert not [name for name in threads if name.startswith("dds.tls")]
    assert bool([name for name in threads if name.startswith("dds.shm")]) == (choice == "default")
