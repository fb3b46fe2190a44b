import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from vla_runtime.engines.errors import EngineInputError, EngineUnavailableError
from vla_runtime.engines.registry import make_engine
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.policy.policy import Observation, load_policy
from vla_runtime.toolchain.against.llama_layer import exact_step, make_layers
from vla_runtime.toolchain.against.onnx_decode import decode_model
from vla_runtime.toolchain.quantize.int4 import dequantise
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


HIDDEN, INNER = 256, 512
PRECISION, GROUP = "INFERENCE_PRECISION_HINT", "DYNAMIC_QUANTIZATION_GROUP_SIZE"


@pytest.fixture(scope="module")
def layers():
    return make_layers(HIDDEN, INNER, 1)


def stage(folder, layers, *, tokens=1, int4=True):
    """Write ``layers`` as a stage that runs ``tokens`` at once, on INT4 weights or on the same in float32."""
    model = decode_model(layers)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_value = tokens
    if not int4:
        weights = {f"l0.{name}": dequantise(each.q, each.scales) for name, each in layers[0].linears.items()}
        kept = [node for node in model.graph.node if node.op_type != "DequantizeLinear"]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        model.graph.initializer.extend(numpy_helper.from_array(w, f"{at}.weight") for at, w in weights.items())
    path = folder / "stage.onnx"
    onnx.save(model, str(path))
    return path


def compiled(engine):
    """Return what OpenVINO says that it compiled for: (precision's name, group of dynamic quantisation)."""
    model = engine._request.get_compiled_model()
    return model.get_property(PRECISION).get_type_name(), int(model.get_property(GROUP))


def defaults():
    openvino = pytest.importorskip("openvino", reason="openvino is optional")
    core = openvino.Core()
    return core.get_property("CPU", PRECISION).get_type_name(), int(core.get_property("CPU", GROUP))


def test_one_token_through_int4_weights_runs_on_the_8_bit_kernels(layers, tmp_path):
    assert defaults() != ("f32", 128)  # else nothing is chosen here
    engine = make_engine("openvino", stage(tmp_path, layers), "any name")
    assert compiled(engine) == ("f32", 128)
    x = np.random.default_rng(3).standard_normal(HIDDEN).astype(np.float32)
    found, wanted = engine.run({"x": x.reshape(1, 1, -1)})["y"].reshape(-1), exact_step(layers, x)
    assert found @ wanted / np.linalg.norm(found) / np.linalg.norm(wanted) > 0.9998


@pytest.mark.parametrize("shape", [{"tokens": 8}, {"int4": False}, {"tokens": 8, "int4": False}])
def test_other_stages_keep_openvinos_own_choice(layers, tmp_path, shape):
    expected = defaults()
    assert compiled(make_engine("openvino", stage(tmp_path, layers, **shape), "action_decode")) == expected


@pytest.mark.parametrize("tokens", [1, 8])
def test_exact_rounds_no_activation(layers, tmp_path, tokens):
    pytest.importorskip("openvino", reason="openvino is optional")
    engine = make_engine("openvino", stage(tmp_path, layers, tokens=tokens), "decode", EngineSettings(exact=True))
    assert compiled(engine) == ("f32", 0)
    x = np.random.default_rng(4).standard_normal((tokens, HIDDEN)).astype(np.float32)
    found = engine.run({"x": x[None]})["y"][0]
    assert np.allclose(found, [exact_step(layers, row) for row in x], atol=1e-4)
