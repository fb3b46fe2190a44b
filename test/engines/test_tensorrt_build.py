"""TensorRT-RTX's real parser and builder on every ONNX file that we emit, ahead of time, without a GPU.

Needs the package tensorrt_rtx, here or in the environment .venv-trt (`make test` and `make setup-tensorrt` fill it).
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from vla_runtime.cli import main
from vla_runtime.toolchain.against.llama_layer import make_layer
from vla_runtime.toolchain.against.onnx_decode import decode_model
from vla_runtime.toolchain.export.merge import merge_linears
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

ROOT = Path(__file__).parents[2]
CAPABILITIES = (86, 89)
BUILD = """
import json, sys
from pathlib import Path
from vla_runtime.engines.tensorrt_api import load_api
from vla_runtime.engines.tensorrt_build import BuildOptions, build_plan
api, sizes, phases = load_api("tensorrt_rtx"), {}, set()
for path in sys.argv[2:]:
    for sm in json.loads(sys.argv[1]):
        try:
            plan = build_plan(api, Path(path), BuildOptions((sm,)), lambda phase, done, total: phases.add(phase))
            sizes[f"{path}:{sm}"] = len(plan)
        except Exception as error:
            sizes[f"{path}:{sm}"] = f"{type(error).__name__}: {error}"
print(json.dumps({"sizes": sizes, "phases": len(phases)}))
"""


def interpreter() -> str | None:
    for python in (sys.executable, str(ROOT / ".venv-trt/bin/python")):
        if Path(python).is_file():
            found = subprocess.run([python, "-c", "import tensorrt_rtx"], capture_output=True)
            if found.returncode == 0:
                return python
    return None


PYTHON = interpreter()
pytestmark = pytest.mark.skipif(PYTHON is None, reason="tensorrt_rtx is not installed (make setup-tensorrt)")


def build(*paths: Path, capabilities=CAPABILITIES) -> dict:
    done = subprocess.run(
        [PYTHON, "-c", BUILD, json.dumps(capabilities), *map(str, paths)],
        capture_output=True, text=True, cwd=ROOT, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def sizes_of(*paths: Path, capabilities=CAPABILITIES) -> dict:
    sizes = build(*paths, capabilities=capabilities)["sizes"]
    assert not {key: value for key, value in sizes.items() if isinstance(value, str)}
    return sizes


def linear(path: Path, dtype=np.float32, size: int = 512) -> Path:
    """LayerNorm, then one large product, as a stage would have them."""
    rng = np.random.default_rng(0)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gain"], ["n"]),
        helper.make_node("MatMul", ["n", "weight"], ["y"]),
    ]
    weights = {"gain": np.ones(size, dtype), "weight": rng.standard_normal((size, size)).astype(dtype)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [4, size])],
        [helper.make_tensor_value_info("y", kind, [4, size])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    return path


def test_every_stage_that_we_emit_builds_for_desktop_cards(tmp_path):
    plain = write_tiny_bundle(tmp_path / "plain", width=256, proven=False)
    assert main(["quantize", str(plain), "--out", str(tmp_path / "int4"), "--random", "--count", "4"]) == 0
    # Stages that are the same in both need no second build.
    (tmp_path / "int4/vision.onnx").unlink(), (tmp_path / "int4/action.onnx").unlink()
    bundles = [plain, tmp_path / "int4", *(path.parent for path in sorted(ROOT.glob("bundles/*/policy.yaml")))]
    stages = [path for bundle in bundles for path in sorted(bundle.glob("*.onnx"))]
    assert len(sizes_of(*stages)) == len(CAPABILITIES) * len(stages) >= 8


def test_int4_weights_stay_packed_in_the_plan(tmp_path):
    import onnx

    from vla_runtime.toolchain.quantize.stage import quantise_graph

    float_path = linear(tmp_path / "float.onnx")
    model = onnx.load(float_path)
    # The layer after a norm is no projector: it may be quantised.
    inputs = [{"x": np.random.default_rng(1).standard_normal((4, 512)).astype(np.float32)}]
    made, report = quantise_graph(model, inputs)
    assert len(report.layers) == 1
    int4_path = tmp_path / "int4.onnx"
    onnx.save(made, str(int4_path))
    sizes = sizes_of(float_path, int4_path)
    weights = 512 * 512
    for sm in CAPABILITIES:
        assert sizes[f"{float_path}:{sm}"] > 4 * weights
        assert 0.5 * weights < sizes[f"{int4_path}:{sm}"] < 2 * weights


def test_int8_and_half_precision_stages_build_and_are_smaller(tmp_path):
    import onnx

    from vla_runtime.toolchain.quantize.half import to_half
    from vla_runtime.toolchain.quantize.int8 import quantise_int8

    float_path = linear(tmp_path / "float.onnx")
    inputs = [{"x": np.random.default_rng(1).standard_normal((4, 512)).astype(np.float32)}]
    paths = [tmp_path / "int8.onnx", tmp_path / "half.onnx"]
    for path, made in zip(paths, (quantise_int8(onnx.load(float_path), inputs)[0], to_half(onnx.load(float_path)))):
        onnx.save(made, str(path))
    sizes, weights = sizes_of(*paths), 512 * 512
    for sm in CAPABILITIES:
        assert weights < sizes[f"{paths[0]}:{sm}"] < 2.5 * weights
        assert 2 * weights < sizes[f"{paths[1]}:{sm}"] < 4 * weights


def test_a_file_that_cannot_be_parsed_is_named_with_its_node(tmp_path):
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], name="odd_one")
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    path = tmp_path / "odd.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    (message,) = build(path, capabilities=[86])["sizes"].values()
    assert message.startswith("EngineError") and "odd.onnx" in message and "NoSuchOperator" in message


def test_a_capability_that_it_does_not_know_is_refused_by_name(tmp_path):
    (message,) = build(linear(tmp_path / "x.onnx", size=64), capabilities=[87])["sizes"].values()
    assert "SM 87" in message and "SM86" in message


def test_the_builder_reports_its_progress(tmp_path):
    assert build(linear(tmp_path / "x.onnx", size=64), capabilities=[89])["phases"] > 0


def test_vla_build_keeps_plans_and_builds_nothing_twice(tmp_path):
    bundle = write_tiny_bundle(tmp_path / "tiny", proven=False)
    code = (
        "import sys; from pathlib import Path; from vla_runtime.toolchain.build import build_bundle\n"
        "from vla_runtime.engines.tensorrt_api import load_api; from vla_runtime.policy.bundle import load_bundle\n"
        "for _ in range(2):\n"
        "    lines = build_bundle(load_bundle(sys.argv[1]), load_api('tensorrt_rtx'), [89], Path(sys.argv[2]))\n"
        "    print('|'.join(line.split(', ')[2].split(':')[0] for line in lines))\n"
    )
    needed = subprocess.run([PYTHON, "-c", "import pydantic, yaml, onnx"], capture_output=True)
    if needed.returncode:
        pytest.skip("pydantic, PyYAML or onnx is not in the environment of tensorrt_rtx")
    done = subprocess.run(
        [PYTHON, "-c", code, str(bundle), str(tmp_path / "cache")], capture_output=True, text=True, cwd=ROOT, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[-2:] == ["built|built|built", "was there already|was there already|was there already"]


def test_merged_int4_linears(tmp_path):
    model = decode_model([make_layer(256, 512)])
    assert merge_linears(model) == 2  # queries, keys and values; the gate and its partner
    path = tmp_path / "merged.onnx"
    path.write_bytes(model.SerializeToString())
    assert sizes_of(path)
