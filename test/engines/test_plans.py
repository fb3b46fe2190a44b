from dataclasses import replace

import pytest

from vla_runtime.engines.errors import EngineError, EngineStaleError, EngineUnavailableError
from vla_runtime.engines.plans import PlanKey, default_cache, lookup, require, store
from vla_runtime.engines.registry import make_engine
from vla_runtime.engines.tensorrt_api import load_api
from vla_runtime.engines.tensorrt_build import refuse_fp8

KEY = PlanKey("vision", "a" * 64, "tensorrt", "10.3.0", 87)


def test_a_plan_comes_back_for_its_key_only(tmp_path):
    store(tmp_path, KEY, b"plan")
    assert lookup(tmp_path, KEY) == b"plan" == require(tmp_path, KEY)
    for change in (
        {"stage": "action"},
        {"onnx_sha256": "b" * 64},
        {"engine": "tensorrt_rtx"},
        {"version": "10.16"},
        {"sm": 110},
    ):
        assert lookup(tmp_path, replace(KEY, **change)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "10.16.2"}, ["version 10.3.0, here 10.16.2"]),
        ({"sm": 110}, ["sm 87, here 110"]),
        ({"sm": 110, "version": "11.4"}, ["sm 87, here 110", "version 10.3.0, here 11.4"]),
    ],
)
def test_a_plan_of_another_version_or_device_is_refused_with_both_and_the_remedy(tmp_path, change, words):
    store(tmp_path, KEY, b"plan")
    with pytest.raises(EngineStaleError, match="vla build BUNDLE --engine tensorrt") as caught:
        require(tmp_path, replace(KEY, **change))
    assert all(word in str(caught.value) for word in words)


def test_a_plan_of_another_model_file_counts_as_none(tmp_path):
    store(tmp_path, KEY, b"plan")
    with pytest.raises(EngineStaleError, match=r"no plan for tensorrt 10\.3\.0 on SM 8\.7"):
        require(tmp_path, replace(KEY, onnx_sha256="c" * 64))


def test_a_damaged_plan_is_refused(tmp_path):
    path = store(tmp_path, KEY, b"plan" * 1000)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert lookup(tmp_path, KEY) is None
    with pytest.raises(EngineStaleError, match="damaged"):
        require(tmp_path, KEY)


def test_an_empty_cache_says_what_is_missing(tmp_path):
    with pytest.raises(EngineStaleError, match="no plan"):
        require(tmp_path / "none", KEY)


def test_cache_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("VLA_ENGINE_CACHE", str(tmp_path))
    assert default_cache() == tmp_path


def installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("engine", ["tensorrt", "tensorrt_rtx"])
def test_without_tensorrt_the_engine_says_how_to_get_it(engine, tmp_path):
    if installed(engine):
        pytest.skip(f"{engine} is installed")
    with pytest.raises(EngineUnavailableError, match=f"engine {engine}: not installed.*(JetPack|pip install)"):
        load_api(engine)
    with pytest.raises(EngineUnavailableError):
        make_engine(engine, tmp_path / "x.onnx", "vision")


def test_fp8_is_refused_by_name_where_the_device_has_none(tmp_path):
    from onnx import TensorProto, helper

    weight = helper.make_tensor("w8", TensorProto.FLOAT8E4M3FN, [4], bytes(4), raw=True)
    nodes = [
        helper.make_node("Cast", ["w8"], ["w"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "w"], ["y"]),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], [weight])
    path = tmp_path / "fp8.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    with pytest.raises(EngineError, match=r"'w8' is FP8, which SM 8\.7 does not have"):
        refuse_fp8(path, (87,))
    refuse_fp8(path, (89,))
