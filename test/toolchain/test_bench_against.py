"""The decode step that is compared with llama.cpp: the same numbers in both forms, figures that mean what they say."""

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from vla_runtime.cli import main
from vla_runtime.engines.errors import UnknownEngineError
from vla_runtime.engines.registry import resolve
from vla_runtime.errors import UserError
from vla_runtime.paths import share
from vla_runtime.toolchain.against.decode import Contender, compare_decode, measure, ours
from vla_runtime.toolchain.against.ggml import BITS, BLOCK, Ggml, GgmlDecode, q4_0
from vla_runtime.toolchain.against.llama_layer import exact_step, make_layer, make_layers
from vla_runtime.toolchain.against.onnx_decode import OnnxDecode, decode_model
from vla_runtime.toolchain.quantize.fusion import inspect_fusion
from vla_runtime.toolchain.quantize.int4 import dequantise

GGML = share(".venv-llamacpp", "lib")


@pytest.fixture(scope="module")
def layer():
    return make_layer(256, 512)


@pytest.fixture(scope="module")
def layers(layer):
    return make_layers(256, 512, 3 * layer.weight_bytes)


@pytest.fixture
def x():
    return np.random.default_rng(3).standard_normal(256).astype(np.float32)


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_q4_0_holds_the_same_weights(layer):
    linear = layer.linears["gate"]
    records = q4_0(linear)
    assert records.shape == (512, 256 // BLOCK, 18) and records.nbytes * 8 == linear.q.size * BITS
    scales = records[..., :2].copy().view(np.float16).astype(np.float32)
    halves = [records[..., 2:] & 15, records[..., 2:] >> 4]
    values = np.concatenate(halves, axis=-1).astype(np.float32) - 8
    assert np.array_equal((values * scales).reshape(512, 256).T, dequantise(linear.q, linear.scales))


def test_no_layer_has_the_weights_of_another(layers):
    """ONNX Runtime keeps equal weights once: a step would read a cache and look faster than the memory is."""
    values = [linear.q.tobytes() for each in layers for linear in each.linears.values()]
    assert len(layers) == 3 and len(set(values)) == len(values)


@pytest.mark.parametrize("engine", ["auto", "openvino"])
def test_our_step_computes_the_layers_on_the_engine_asked_for(layers, x, tmp_path, engine):
    if engine == "openvino":
        pytest.importorskip("openvino", reason="openvino is optional")
    decoder = OnnxDecode(layers, 1, tmp_path, engine)
    assert decoder.name.split()[0] == resolve(engine)
    assert cosine(decoder.step(x), exact_step(layers, x)) > 0.9998


def test_our_step_is_fused(layers, tmp_path):
    onnx.save(decode_model(layers), str(tmp_path / "decode.onnx"))
    fusion = inspect_fusion(tmp_path / "decode.onnx")
    assert (fusion.fused, fusion.unfused) == (3 * 7, 0)


class Replay:
    """A decoder that gives the exact answer, and takes its time."""

    name = "replay"

    def __init__(self, layers, wrong=False):
        self.layers, self.wrong = layers, wrong

    def step(self, x):
        found = exact_step(self.layers, x)
        return found[::-1].copy() if self.wrong else found


def test_figures_are_of_one_layer_and_of_the_bytes_that_each_form_has(layer, tmp_path):
    layers = make_layers(256, 512, 5 * layer.weight_bytes - 1)
    contenders = [ours(1, tmp_path), Contender("replay", 8, Replay)]
    found = compare_decode(layers, contenders, threads=1, rounds=6, pause_s=0.0)
    assert found["layers"] == 5 and found["clock"] == "processor" and found["rounds"] == 6
    assert found["ours"]["bytes"] == pytest.approx(layer.weight_bytes * 4.25 / 4)
    assert found["replay"]["bytes"] == 2 * layer.weight_bytes
    for each in (found["ours"], found["replay"]):
        assert 0 < each["best_ms"] <= each["p50_ms"] <= each["p99_ms"] and each["cosine"] > 0.999
        rate = each["bytes"] / each["best_ms"] / 1e6
        assert each["share_of_read"]["best"] == pytest.approx(rate / found["read_gb_s"]["best"])
    # float32 products on the whole weights: far slower than the fused kernel, and the ratio says so
    assert found["time_ratio"]["replay"]["best"] < 1
    assert found["time_ratio"]["replay"]["best"] == pytest.approx(found["ours"]["best_ms"] / found["replay"]["best_ms"])


def test_an_engine_that_is_not_there_is_refused(layers):
    with pytest.raises(UnknownEngineError, match="abacus"):
        measure(layers, [], engine="abacus", threads=1, rounds=1, progress=lambda text: None)


def test_the_engine_asked_for_is_the_one_that_is_measured(layers):
    pytest.importorskip("openvino", reason="openvino is optional")
    found = measure(layers, [], engine="openvino", threads=1, rounds=1, progress=lambda text: None)
    assert found["ours"]["engine"].startswith("openvino ")


def test_a_contender_that_computes_something_else_is_refused(layers):
    wrong = Contender("wrong", 8, lambda layers: Replay(layers, wrong=True))
    with pytest.raises(UserError, match="computes something else"):
        compare_decode(layers, [wrong], threads=1, rounds=1, pause_s=0.0)


@pytest.mark.skipif(not (GGML / "libggml-cpu.so").is_file(), reason="needs `make setup-llamacpp`")
def test_ggml_computes_the_same_layers(layers, x):
    ggml = Ggml(GGML)
    for buffer in [*ggml.weight_buffers(), None]:
        decoder = GgmlDecode(ggml, layers, 1, buffer)
        assert cosine(decoder.step(x), exact_step(layers, x)) > 0.9998, decoder.name
        decoder.close()


def test_a_peer_that_is_not_there_is_named_before_anything_is_measured(tmp_path, capsys):
    assert main(["bench", "policy", "--against", "llama.cpp", "--peer", str(tmp_path)]) == 1
    assert "make setup-llamacpp" in capsys.readouterr().err
    if GGML.is_dir():
        for name in ("libggml-base.so", "libggml-cpu.so"):
            shutil.copy(GGML / name, tmp_path / name)
        with pytest.raises(UserError, match=r"libggml\.so"):
            Ggml(Path(tmp_path))
