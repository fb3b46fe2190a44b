"""LeRobot's RTC processor and temporal ensembler as independent oracles (`make test-peers`)."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the peers' environment: make test-peers")

from vla_runtime.toolchain.export.lerobot_load import without_torchvision_library  # noqa: E402

H, WIDTH = 16, 5


@pytest.fixture(scope="module")
def lerobot():
    without_torchvision_library()
    pytest.importorskip("lerobot", reason="the peers' environment: make test-peers")
    from lerobot.configs.types import RTCAttentionSchedule
    from lerobot.policies.rtc.configuration_rtc import RTCConfig
    from lerobot.policies.rtc.modeling_rtc import RTCProcessor

    return RTCAttentionSchedule, RTCConfig, RTCProcessor


@pytest.mark.parametrize("schedule", ["exp", "linear", "ones", "zeros"])
@pytest.mark.parametrize("delay", [0, 2, 5])
@pytest.mark.parametrize("horizon", [6, 10, 16])
def test_mask_equals_lerobots(lerobot, schedule, delay, horizon):
    from vla_runtime.policy.rtc import soft_mask

    schedules, config, processor = lerobot
    theirs = processor(config(prefix_attention_schedule=schedules[schedule.upper()])).get_prefix_weights(
        delay, horizon, H
    )
    assert soft_mask(H, delay, horizon, schedule) == pytest.approx(theirs.numpy(), abs=1e-6)


@pytest.mark.parametrize("schedule", ["exp", "linear"])
@pytest.mark.parametrize("leftover", [7, 11, 16])
def test_whole_guided_sampling_equals_lerobots_processor(lerobot, schedule, leftover):
    from vla_runtime.policy.rtc import pad_target, sample_guided_identity, soft_mask

    schedules, config, processor = lerobot
    rng = np.random.default_rng(leftover)
    matrix, noise = rng.normal(size=(WIDTH, WIDTH)) * 0.4, rng.normal(size=(H, WIDTH))
    previous = rng.normal(size=(leftover, WIDTH))
    delay, execution_horizon, steps, most = 3, 10, 5, 10.0

    def velocity(x, tau):  # ours: time 0 is noise
        return np.tanh(x @ matrix) * (1.0 + tau)

    def their_velocity(x):  # LeRobot's v points from clean to noise
        return -torch.tanh(x @ torch.tensor(matrix)) * (2.0 - their_velocity.time)

    rtc = processor(config(enabled=True, prefix_attention_schedule=schedules[schedule.upper()],
                           max_guidance_weight=most, execution_horizon=execution_horizon))  # fmt: skip
    x = torch.tensor(noise)[None]
    for step in range(steps):
        time = 1.0 - step / steps
        their_velocity.time = time
        v = rtc.denoise_step(x, torch.tensor(previous)[None], delay, torch.tensor(time, dtype=torch.float64),
                             their_velocity, execution_horizon)  # fmt: skip
        x = x - v / steps
    # LeRobot cuts its horizon to the leftover; beyond it the target has no weight.
    weights = soft_mask(H, delay, min(execution_horizon, leftover), schedule)
    ours = sample_guided_identity(velocity, noise, steps, pad_target(previous, H), weights, most)
    assert ours == pytest.approx(x[0].detach().numpy(), abs=1e-6)


def test_ensemble_weights_equal_acts(lerobot):
    from lerobot.policies.act.modeling_act import ACTTemporalEnsembler

    from vla_runtime.control.blending import ensemble_weights

    chunk, coefficient = 8, 0.01
    ensembler = ACTTemporalEnsembler(coefficient, chunk)
    rng = np.random.default_rng(0)
    chunks: list[np.ndarray] = []
    for now in range(20):
        chunks.append(rng.normal(size=(chunk, WIDTH)))
        theirs = ensembler.update(torch.tensor(chunks[-1], dtype=torch.float32)[None])[0].numpy()
        valid = [c[now - born] for born, c in enumerate(chunks) if now - born < chunk]  # oldest first
        ours = ensemble_weights(len(valid), coefficient) @ np.array(valid)
        assert ours == pytest.approx(theirs, abs=1e-5)
