"""How frames come: sent at which rate, lost how many, whatever of them is used."""

import pytest

from vla_runtime.nodes import camera_flow
from vla_runtime.nodes.camera_flow import CameraFlow, lossy


class LostCount:
    """Stands for the event of DDS."""

    def __init__(self):
        self.total_count = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def take_event(self):
        return self


@pytest.fixture
def lost(monkeypatch):
    count = LostCount()
    monkeypatch.setattr(camera_flow, "_lost_event", lambda subscription: count)
    return count


def frame(number, t, publisher=b"a"):
    return {
        "publication_sequence_number": number,
        "source_timestamp": int(t * 1e9),
        "publisher_gid": {"data": publisher},
    }


def test_the_rate_is_that_of_sending_not_of_taking(lost):
    flow = CameraFlow(None)
    assert flow.figures(0.0) == {"rate_hz": None, "lost": 0, "lost_share": 0.0}
    for number in (1, 7, 13, 31):
        flow.took(frame(number, 100 + number / 30))
    assert flow.figures(2.0)["rate_hz"] == pytest.approx(30.0)


def test_another_publisher_counts_anew(lost):
    flow = CameraFlow(None)
    for number in (100, 130):
        flow.took(frame(number, number / 30))
    flow.took(frame(1, 10.0, b"b"))
    assert flow.figures(0.0)["rate_hz"] is None
    flow.took(frame(11, 11.0, b"b"))
    assert flow.figures(0.0)["rate_hz"] == pytest.approx(10.0)


def test_losses_are_a_share_of_the_last_ten_seconds_and_told_by_topic(lost):
    flow = CameraFlow(None)
    for second in range(30):
        flow.took(frame(30 * second, second))
        lost.total_count += 3 if second < 15 else 0
        figures = flow.figures(second)
        if second == 14:
            assert figures["lost_share"] == pytest.approx(0.1, abs=0.01)
            assert lossy({"/front/image_raw": figures}).startswith(
                "frames are lost on the way: /front/image_raw (10% of its frames); see 'Pictures are lost'"
            )
    assert figures["lost"] == 45
    assert figures["lost_share"] == 0.0
    assert lossy({"/front/image_raw": figures}) == ""


def test_where_nothing_is_told_nothing_is_made_up():
    flow = CameraFlow(None)  # no such subscription: as where rclpy has no such event
    flow.took({"source_timestamp": 5})
    assert flow.figures(1.0) == {"rate_hz": None, "lost": None, "lost_share": None}
    assert lossy({"/front/image_raw": flow.figures(2.0)}) == ""
