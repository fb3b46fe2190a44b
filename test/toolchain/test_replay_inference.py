"""What is told of answers that were computed again: those without their pictures are no failures, nor successes."""

import argparse

import pytest

from vla_runtime.errors import UserError
from vla_runtime.toolchain.replay import command, inference
from vla_runtime.toolchain.replay.inference import Recomputed


def test_answers_without_pictures_are_not_counted_as_different():
    told = Recomputed(answers=77, equal=14, without_pictures=63).lines()
    assert told[0] == "policy: 14 of 14 answers equal"
    assert told[1].startswith("policy: 63 answers not compared") and "--image-hz" in told[1]


def test_a_difference_is_told():
    told = Recomputed(answers=3, equal=2, differences=["answer a:1: recorded x, now y"]).lines()
    assert told == ["policy: 2 of 3 answers DIFFERENT", "  answer a:1: recorded x, now y"]


def test_nothing_compared_is_no_success(monkeypatch, tmp_path):
    class Warm:
        def warm_up(self):
            pass

    monkeypatch.setattr("vla_runtime.policy.policy.load_policy", lambda *args, **named: Warm())
    monkeypatch.setattr(inference, "recompute", lambda bag, policy: Recomputed(answers=5, without_pictures=5))
    asked = argparse.Namespace(bag=tmp_path, infer=tmp_path, allow_unproven=False)
    with pytest.raises(UserError, match="lacks pictures of each of its 5 answers"):
        command._infer(asked)
