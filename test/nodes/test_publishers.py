"""Who else commands the arm is named: never this node itself, never by what ROS writes for a name it lacks."""

from types import SimpleNamespace

import pytest

from vla_runtime.nodes.publishers import NAMELESS, PublisherWatch

TOPIC = "/joint_trajectory"


def watch(*names: str) -> PublisherWatch:
    """A watch of node /arm/watchdog on a topic with publishers of these nodes."""
    places = [name.rpartition("/") for name in names]
    infos = [SimpleNamespace(node_namespace=space or "/", node_name=name) for space, _, name in places]
    node = SimpleNamespace(
        resolve_topic_name=lambda topic: topic,
        get_fully_qualified_name=lambda: "/arm/watchdog",
        get_publishers_info_by_topic=lambda topic: infos,
        count_publishers=lambda topic: len(infos),
        get_logger=lambda: SimpleNamespace(error=lambda text: None),
    )
    return PublisherWatch(node, TOPIC)


UNKNOWN = "_NODE_NAMESPACE_UNKNOWN_/_NODE_NAME_UNKNOWN_"


@pytest.mark.parametrize(
    ("publishers", "named"),
    [
        (["/arm/watchdog", "/probe"], "(/probe)"),
        (["/arm/watchdog", UNKNOWN], f"({NAMELESS})"),
        (["/arm/watchdog", UNKNOWN, UNKNOWN], f"({NAMELESS}, {NAMELESS})"),
        (["/arm/watchdog"], f"({NAMELESS})"),
        (["/arm/watchdog", "/arm/watchdog"], "(/arm/watchdog; one of the same name may be a predecessor"),
    ],
)
def test_a_refusal_names_the_others(publishers, named):
    assert f"another publisher sends on topic '{TOPIC}' {named}" in str(watch(*publishers).refusal())


def test_the_state_names_them_all():
    message = watch("/arm/watchdog", UNKNOWN).status().message
    assert message == f"2 publishers on topic '{TOPIC}': /arm/watchdog, {NAMELESS}"
