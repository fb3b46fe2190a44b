"""What a control process does to its environment before DDS is there."""

from xml.etree import ElementTree

import pytest

from vla_runtime.nodes.transport import choose_udp


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
