import numpy as np
import pytest

from vla_runtime.engines.errors import EngineInputError, EngineUnavailableError
from vla_runtime.engines.registry import make_engine
from vla_runtime.policy.policy import Observation, load_policy
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("openvino"), proven=False)


def test_without_the_package_it_says_how_to_get_it(bundle):
    import importlib.util

    if importlib.util.find_spec("openvino"):
        pytest.skip("openvino is installed")
    with pytest.raises(EngineUnavailableError, match="pip install openvino"):
        make_engine("openvino", bundle / "vision.onnx", "vision")


def test_it_agrees_with_onnxruntime_and_checks_its_inputs(bundle):
    pytest.importorskip("openvino", reason="openvino is optional")
    images = {name: np.full((32, 32, 3), 99, np.uint8) for name in ("front", "wrist")}
    observation = Observation(0.0, images, np.zeros(6), "pick up the red cube")
    ours, theirs = (load_policy(bundle, engine, allow_unproven=True) for engine in ("openvino", "onnxruntime"))
    assert np.allclose(ours.infer(observation, seed=1).actions, theirs.infer(observation, seed=1).actions, atol=1e-3)
    with pytest.raises(EngineInputError, match="images"):
        ours.engines["vision"].run({})
