import json

import numpy as np
import pytest

from vla_runtime.errors import UserError
from vla_runtime.toolchain.export.lerobot_checkpoint import read_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint whose state has one normalisation, and statistics of all kinds."""
    from safetensors.numpy import save_file

    values = {"mean": 1.0, "std": 2.0, "min": -4.0, "max": 8.0, "q01": 1.0, "q99": 5.0, "q10": 2.0, "q90": 3.0}
    statistics = {f"observation.state.{name}": np.full(2, value, np.float32) for name, value in values.items()}
    save_file(statistics, str(tmp_path / "policy_preprocessor_step_3_normalizer_processor.safetensors"))

    def made(mode):
        (tmp_path / "config.json").write_text(json.dumps({"normalization_mapping": {"STATE": mode}}))
        return read_checkpoint(tmp_path)

    return made


@pytest.mark.parametrize(
    ("mode", "mean", "std"),
    [("MEAN_STD", 1.0, 2.0), ("MIN_MAX", 2.0, 6.0), ("QUANTILES", 3.0, 2.0), ("QUANTILE10", 2.5, 0.5)],
)
def test_statistics_become_mean_and_deviation(checkpoint, mode, mean, std):
    found = checkpoint(mode).in_radians("STATE", "observation.state", 2, "deg")
    assert found["mean"] == pytest.approx([mean * np.pi / 180] * 2)
    assert found["std"] == pytest.approx([std * np.pi / 180] * 2, rel=1e-6)


def test_an_unknown_normalisation_is_named(checkpoint):
    with pytest.raises(UserError, match="normalisation RANKS of STATE is not supported"):
        checkpoint("RANKS").normalisation("STATE", "observation.state")
    with pytest.raises(UserError, match="no statistics .'q01', 'q99'. of 'action'"):
        checkpoint("QUANTILES").normalisation("STATE", "action")
