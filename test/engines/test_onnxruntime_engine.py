import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from vla_runtime.engines.base import Engine, TensorSpec
from vla_runtime.engines.errors import EngineError, EngineInputError, EngineOutputError, EngineUnavailableError
from vla_runtime.engines.registry import ENGINES, make_engine, resolve
from vla_runtime.engines.settings import EngineSettings


def write(path, nodes, inputs, outputs):
    def values(specs):
        return [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in specs.items()]

    graph = helper.make_graph(nodes, "g", values(inputs), values(outputs))
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    )
    return path


@pytest.fixture
def log(tmp_path):
    """y = log(x): -inf at 0, nan below."""
    return write(
        tmp_path / "log.onnx",
        [helper.make_node("Log", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT, [2, 3])},
        {"y": (TensorProto.FLOAT, [2, 3])},
    )


def test_names_shapes_and_dtypes_are_known_before_the_first_run(log):
    engine = make_engine("auto", log, "head")
    assert isinstance(engine, Engine)
    assert engine.inputs == {"x": TensorSpec((2, 3), "float32")} == {"x": engine.outputs["y"]}
    assert engine.run({"x": np.ones((2, 3), np.float32)})["y"].tolist() == [[0] * 3] * 2


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, ["'x' is missing", "float32[2, 3]"]),
        ({"x": np.ones((2, 4), np.float32)}, ["float32[2, 4]", "float32[2, 3]"]),
        ({"x": np.ones((2, 3))}, ["float64[2, 3]"]),
        ({"x": np.ones((2, 3), np.float32), "z": np.ones(1)}, ["'z'"]),
        ({"z": np.ones(1)}, ["'z'", "'x' is missing"]),
    ],
)
def test_tensors_that_do_not_fit_are_named(log, inputs, words):
    with pytest.raises(EngineInputError, match="head") as caught:
        make_engine("onnxruntime", log, "head").run(inputs)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(("value", "count"), [(0.0, 1), (-1.0, 1)])
def test_output_that_is_not_finite_is_named_with_its_place(log, value, count):
    x = np.ones((2, 3), np.float32)
    x[1, 2] = value
    with pytest.raises(EngineOutputError, match=rf"'y' has {count} values.*\[1, 2\]"):
        make_engine("onnxruntime", log, "head").run({"x": x})


def test_large_but_finite_outputs_pass(tmp_path):
    path = write(
        tmp_path / "id.onnx",
        [helper.make_node("Identity", ["x"], ["y"])],
        {"x": (TensorProto.FLOAT, [4])},
        {"y": (TensorProto.FLOAT, [4])},
    )
    big = np.full(4, np.finfo(np.float32).max)
    assert np.array_equal(make_engine("onnxruntime", path, "s").run({"x": big})["y"], big)


def test_a_file_that_does_not_load_is_named(tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"junk")
    with pytest.raises(EngineError, match=r"'head'.*bad\.onnx"):
        make_engine("onnxruntime", tmp_path / "bad.onnx", "head")


def test_open_shapes_are_refused(tmp_path):
    node = helper.make_node("Identity", ["x"], ["y"])
    kind = {"x": (TensorProto.FLOAT, ["batch", 3])}
    path = write(tmp_path / "open.onnx", [node], kind, {"y": (TensorProto.FLOAT, ["batch", 3])})
    with pytest.raises(EngineError, match="batch"):
        make_engine("onnxruntime", path, "head")


def test_a_provider_that_is_not_there_is_named(log):
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this build has CUDA")
    with pytest.raises(EngineUnavailableError, match="CUDAExecutionProvider"):
        make_engine("onnxruntime", log, "head", EngineSettings(device="cuda"))


def test_registry_names():
    assert resolve("auto") in ENGINES
    with pytest.raises(EngineError, match="'abacus'.*onnxruntime"):
        resolve("abacus")


RUN = """
import sys
from pathlib import Path
from vla_runtime.engines.registry import make_engine
make_engine("onnxruntime", Path(sys.argv[1]), "head")
"""


def test_nothing_is_noted_for_others(log, tmp_path):
    """ONNX Runtime keeps its telemetry in the home folder; in CI it keeps none, so this is none."""
    home = tmp_path / "home"
    home.mkdir()
    quiet = ("CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "TF_BUILD", "GITHUB_ACTIONS", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in quiet} | {"HOME": str(home)}

    subprocess.run([sys.executable, "-c", RUN, str(log)], env=environment, check=True, timeout=60)
    assert not [path for path in home.rglob("*onnxruntime*") if path.is_file()]
