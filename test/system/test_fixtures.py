"""The fixtures of this folder, tried on real processes and a real domain."""

import fcntl
import os
import signal
import tempfile
from pathlib import Path

import pytest
from rcl_interfaces.msg import Log
from std_srvs.srv import Trigger


def test_the_probe_hears_its_domain(ros):
    heard = ros.listen(Log, "chatter")
    ros.publisher(Log, "chatter").publish(Log(msg="x"))
    ros.wait(lambda: heard, 5.0, "the probe's own message")
    assert heard[0][1].msg == "x"


def test_a_stopped_process_ends_all_the_same(spawn, ros):
    server = spawn("http.server", "0", "--bind", "127.0.0.1")
    ros.wait(lambda: "Serving" in server.log(), 10.0, "the server")
    server.signal(signal.SIGSTOP)
    server.stop()
    assert not server.alive


def test_the_domain_is_held_while_the_test_runs(ros_domain):
    assert int(os.environ["ROS_DOMAIN_ID"]) == ros_domain
    path = Path(tempfile.gettempdir()) / "vla_runtime_domains" / str(ros_domain)
    with path.open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_service_is_called(ros):
    def answer(request, response):
        response.success = True
        response.message = "done"
        return response

    ros.node.create_service(Trigger, "do", answer)
    assert ros.call(Trigger, "do").message == "done"
