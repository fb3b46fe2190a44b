"""The census of a soak: it finds its own processes, sees them grow and end, and names the memory they leave."""

import argparse
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from vla_runtime.errors import UserError
from vla_runtime.toolchain import bench_soak
from vla_runtime.toolchain.soak_census import Census

CHILD = """
import mmap, os, sys
file = open("/dev/shm/" + sys.argv[1], "w+b")
file.truncate(4096)
keep = mmap.mmap(file.fileno(), 4096)
files = [open(name) for name in sys.argv[2:]]
hoard = []
print("ready", flush=True)
for line in sys.stdin:
    hoard.append(bytearray(4 << 20))
    hoard[-1][::1024] = bytes(4 << 10)  # a page counts once it was written to
    print("grown", flush=True)
"""


@pytest.fixture
def segment():
    name = f"soak_test_{uuid.uuid4().hex[:8]}"
    yield name
    Path("/dev/shm", name).unlink(missing_ok=True)


def child(census, segment, folder, *opened):
    script = folder / "child.py"
    script.write_text(CHILD)
    words = [sys.executable, str(script), segment, *opened]
    process = subprocess.Popen(words, env={**os.environ, **census.mark}, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_census_sees_growth_an_end_and_what_is_left(segment, tmp_path):
    census = Census(uuid.uuid4().hex)
    process = child(census, segment, tmp_path)
    try:
        for minute in range(4):
            assert census.look(60.0 * minute) == set()
            process.stdin.write("more\n")
            process.stdin.flush()
            assert process.stdout.readline() == "grown\n"
        (figures,) = census.growth(settled_s=60.0).values()
        assert figures["kib_per_min"] == pytest.approx(4096, rel=0.1)
        grown = figures["end"]["rss_mib"] / figures["settled"]["rss_mib"]
        assert figures["percent"] == pytest.approx(100.0 * (grown - 1.0), abs=0.01)
        assert len(figures["mib_each_minute"]) == 4
        assert figures["end"]["rss_mib"] > figures["settled"]["rss_mib"] + 7
        assert figures["end"]["handles"] >= 4
        assert figures["end"]["threads"] == 1
        assert len(census.alive()) == 1
    finally:
        census.kill()
        process.wait(10)
        process.stdin.close()
        process.stdout.close()
    assert census.alive() == []
    assert census.look(300.0) == {Path(sys.executable).name}
    assert census.segments_left() == [f"{segment} ({Path(sys.executable).name})"]


def test_a_segment_that_was_there_before_is_nobodys_leak(segment, tmp_path):
    Path("/dev/shm", segment).write_bytes(b"x" * 4096)
    census = Census(uuid.uuid4().hex)
    process = child(census, segment, tmp_path)
    census.look(0.0)
    process.communicate()
    assert census.segments_left() == []


@pytest.mark.parametrize("ours", [True, False])
def test_a_segment_is_its_whose_lock_is_held(segment, tmp_path, ours):
    census = Census(uuid.uuid4().hex)
    lock = Path("/dev/shm", f"{segment}_el")
    lock.touch()
    try:
        process = child(census, segment, tmp_path, *([str(lock)] if ours else []))
        census.look(0.0)
        process.communicate()
        assert bool(census.segments_left()) == ours
    finally:
        lock.unlink()


def test_a_minute_is_too_short():
    parser = argparse.ArgumentParser()
    bench_soak.add_arguments(parser)
    with pytest.raises(UserError, match="--minutes 1: growth is counted from the first minute on"):
        bench_soak.run(parser.parse_args(["--minutes", "1"]))


def test_what_has_grown_is_named(monkeypatch, capsys):
    def process(end_mib):
        settled = {"rss_mib": 100.0, "own_mib": 50.0, "handles": 16, "threads": 17}
        return {"settled": settled, "end": {**settled, "rss_mib": end_mib}, "percent": end_mib - 100.0,
                "kib_per_min": 68.3, "mib_each_minute": [100.0, end_mib]}  # fmt: skip

    figures = {"minutes": 30.0, "episodes": 1, "successes": 1, "bag_mib": 1.0, "ctrl_c_s": 2.0, "died": [], "grown": [],
               "processes": {"executor_node": process(101.9), "watchdog_node": process(102.1)},
               "left": {"processes": [], "shared_memory": [], "port_files": []}}  # fmt: skip
    monkeypatch.setattr(bench_soak, "soak", lambda *_: figures)
    parser = argparse.ArgumentParser()
    bench_soak.add_arguments(parser)
    assert bench_soak.run(parser.parse_args([])) == 0
    assert "grew" not in capsys.readouterr().out
    figures["grown"] = ["watchdog_node"]
    assert bench_soak.run(parser.parse_args([])) == 1
    text = capsys.readouterr().out
    assert "grew by more than 2 % after the first minute: watchdog_node" in text
    assert "+1.9 %" in text
    assert max(map(len, text.splitlines())) <= 80


def test_two_percent_is_the_most_for_a_node():
    percents = {"a_node": 2.0, "b_node": 2.01, "c_node": -5.0, "record": 9.0}
    assert bench_soak.grown({name: {"percent": percent} for name, percent in percents.items()}) == ["b_node"]
