import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vla_runtime.policy.action_space import ActionSpace
from vla_runtime.policy.bundle import load_bundle


def space_of(bundle, name, pad_to=None):
    policy = load_bundle(bundle).policy
    action = policy.action.model_copy(
        update={"space": name, "pad_to": pad_to, "mean": [0.1] * 6, "std": [0.2 + 0.1 * i for i in range(6)]}
    )
    return ActionSpace(policy.model_copy(update={"action": action}))


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["joint_position", "joint_delta"]), st.sampled_from([None, 32]), st.integers(0, 1000))
def test_there_and_back(tiny_bundle, name, pad_to, seed):
    rng = np.random.default_rng(seed)
    space, state = space_of(tiny_bundle, name, pad_to), rng.uniform(-1, 1, 6)
    positions = rng.uniform(-1, 1, (5, 6))
    rows = space.from_radians(positions, state)
    assert rows.shape == (5, pad_to or 6)
    assert space.to_radians(rows, state) == pytest.approx(positions, abs=1e-6)


def test_delta_is_relative_to_the_observed_state(tiny_bundle):
    space, state = space_of(tiny_bundle, "joint_delta"), np.arange(6) / 10
    assert space.to_radians(np.zeros((2, 6), np.float32), state) == pytest.approx(np.stack([state + 0.1] * 2))


def test_velocities_are_integrated_from_the_observed_state(tiny_bundle):
    space, state = space_of(tiny_bundle, "joint_velocity"), np.arange(6) / 10
    positions = space.to_radians(np.zeros((4, 6), np.float32), state)  # the mean: 0.1 rad/s, step 0.02 s
    assert positions == pytest.approx(state + 0.002 * np.arange(4)[:, None])
    rows = space.from_radians(positions, state)
    assert rows == pytest.approx(np.zeros((4, 6)), abs=1e-6)


def test_state_is_normalised_and_padded(tiny_bundle):
    policy = load_bundle(tiny_bundle).policy
    state = policy.state.model_copy(update={"pad_to": 8, "mean": [1.0] * 6, "std": [2.0] * 6})
    row = ActionSpace(policy.model_copy(update={"state": state})).state_row(np.full(6, 5.0))
    assert row.dtype == np.float32 and row[0].tolist() == [2.0] * 6 + [0.0, 0.0]
