"""Real-time priority: granted to all threads, or refused with what to do."""

import ast
import os
import subprocess
import sys

import pytest

from vla_runtime.nodes.realtime import request_realtime

SCRIPT = """
import os, resource, threading
from vla_runtime.nodes.realtime import release_realtime, request_realtime
threading.Thread(target=threading.Event().wait, daemon=True).start()
refusal = request_realtime(7)
tasks = sorted(os.sched_getscheduler(int(t)) for t in os.listdir("/proc/self/task"))
priorities = sorted(os.sched_getparam(int(t)).sched_priority for t in os.listdir("/proc/self/task"))
own = os.sched_getparam(0).sched_priority
limit = resource.getrlimit(resource.RLIMIT_RTTIME)[0]
release_realtime()
after = sorted(os.sched_getscheduler(int(t)) for t in os.listdir("/proc/self/task"))
print(repr((refusal, tasks, priorities, own, limit, after)))
"""

HEAPS = """
import sys, threading
from vla_runtime.nodes.realtime import keep_heap, reserve_heap
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
figures = []
def work():
    figures.append(resident())
    if sys.argv[1] == "reserved":
        keep_heap()
        reserve_heap(8 << 20)
    figures.append(resident())
    # What waits for a recorder at a busy moment, and is written out afterwards.
    arrays = [bytearray(3000) for _ in range(2000)]
    figures.append(resident())
    del arrays
    figures.append(resident())
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(repr(figures))
"""


def run(*prefix):
    result = subprocess.run([*prefix, sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return ast.literal_eval(result.stdout)


def test_every_thread_gets_it_and_gives_it_back():
    refusal, tasks, priorities, own, limit, after = run()
    if refusal:
        pytest.skip(refusal)
    assert set(tasks) == {os.SCHED_FIFO}
    assert (priorities[-1], own) == (7, 7)
    assert set(priorities[:-1]) == {6}
    assert limit == 3_000_000
    assert set(after) == {os.SCHED_OTHER}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to lower its own rights")
def test_a_refusal_names_the_limit_and_what_to_set():
    refusal, tasks, *_ = run("setpriv", "--reuid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
    assert "rtprio 7" in refusal
    assert "limits.d" in refusal
    assert "--ulimit" in refusal
    assert set(tasks) == {os.SCHED_OTHER}


def test_it_can_be_switched_off():
    assert "realtime_priority is 0" in request_realtime(0)


def test_a_heap_that_was_reserved_neither_grows_nor_shrinks():
    def heaps(how):
        result = subprocess.run([sys.executable, "-c", HEAPS, how], capture_output=True, text=True, check=True)
        return [value / 2**20 for value in ast.literal_eval(result.stdout)]

    before, begin, full, _ = heaps("plain")
    assert begin - before < 1.0
    assert full - begin > 5.0
    before, begin, full, empty = heaps("reserved")
    assert begin - before > 7.0
    assert abs(full - begin) < 1.0
    assert abs(empty - begin) < 1.0


STAYING = """
import os, threading
from vla_runtime.nodes.realtime import stay_on
before = sorted(os.sched_getaffinity(0))
threading.Thread(target=threading.Event().wait, daemon=True).start()
untouched = stay_on(-1)
refusal = stay_on(4095)
assert sorted(os.sched_getaffinity(0)) == before
granted = stay_on(before[-1])
threading.Thread(target=threading.Event().wait, daemon=True).start()
cores = [sorted(os.sched_getaffinity(int(thread))) for thread in os.listdir("/proc/self/task")]
print(repr((untouched, refusal, granted, cores, before)))
"""


def test_all_threads_stay_on_a_core_or_it_is_said_which_there_are():
    out = subprocess.run([sys.executable, "-c", STAYING], capture_output=True, text=True, check=True).stdout
    untouched, refusal, granted, cores, before = ast.literal_eval(out)
    assert untouched == granted == ""
    assert cores == [[before[-1]]] * 3
    assert "core 4095" in refusal and str(before) in refusal and "cpu" in refusal
