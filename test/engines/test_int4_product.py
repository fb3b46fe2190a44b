"""Our product of one row with INT4 weights: the same numbers as ONNX Runtime's own, and only where it is meant."""

import shutil
import sysconfig
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import vla_runtime.engines.onnxruntime_engine as onnxruntime_engine
from vla_runtime.engines.errors import EngineError, EngineOutputError
from vla_runtime.engines.int4 import library as library_module
from vla_runtime.engines.int4.graph import replace_products
from vla_runtime.engines.int4.library import find_library
from vla_runtime.engines.registry import make_engine
from vla_runtime.engines.settings import EngineSettings
from vla_runtime.toolchain.quantize.int4 import dequantise, pack

needs_library = pytest.mark.skipif(
    find_library() is None, reason="not compiled here, or a processor without AVX-512 VNNI"
)


def weight(k, n, block, seed=0):
    """Return (q (K, N) in [-8, 7], scales (K / block, N)); every fourth scale negative, since nothing forbids it."""
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.01, 1, (k // block, n)).astype(np.float32)
    scales.reshape(-1)[::4] *= -1
    return rng.integers(-8, 8, (k, n), dtype=np.int8), scales


def product(q, scales, rows=1, axis=0, block=None, kind=np.float32):
    """Return the graph y = x @ dequantised(q, scales)."""
    k, n = q.shape
    block = block or k // scales.shape[0]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    constants = [
        helper.make_tensor("q", TensorProto.INT4, q.shape, pack(q), raw=True),
        numpy_helper.from_array(scales.astype(kind), "scales"),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scales"], ["w"], axis=axis, block_size=block),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, element, [1, rows, width]) for name, width in (("x", k), ("y", n))]
    graph = helper.make_graph(nodes, "product", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def saved(folder: Path, model) -> Path:
    path = folder / "product.onnx"
    onnx.save(model, str(path))
    return path


def run(path, x, **options):
    return make_engine("onnxruntime", path, "decode", EngineSettings(**options)).run({"x": x})["y"]


def onnxruntimes_own(path, x):
    import onnxruntime

    return onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0]


def row(k, seed=1, rows=1):
    return np.random.default_rng(seed).standard_normal((1, rows, k)).astype(np.float32)


def is_ours(path):
    return "own INT4 product" in make_engine("onnxruntime", path, "decode").version


@needs_library
@settings(max_examples=60, deadline=None)
@given(
    blocks=st.integers(1, 5),
    block=st.sampled_from([16, 32, 64, 128, 256]),
    strips=st.integers(1, 11),
    threads=st.sampled_from([1, 2, 3]),
    size=st.sampled_from([1e-20, 1e-3, 1.0, 1e6]),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_computes_what_onnxruntime_computes(tmp_path_factory, blocks, block, strips, threads, size, seed):
    q, scales = weight(blocks * block, strips * 16, block, seed)
    path = saved(tmp_path_factory.mktemp("product"), product(q, scales))
    x = row(blocks * block, seed) * np.float32(size)
    assert is_ours(path)
    found = run(path, x, threads=threads).reshape(-1)
    exact = (x.astype(np.float64) @ dequantise(q, scales)).reshape(-1)
    room = np.abs(x).astype(np.float64).reshape(-1) @ np.abs(dequantise(q, scales))  # of every sum, without cancelling
    assert np.all(
        np.abs(found - exact) <= 0.01 * room + 1e-30
    )  # rounding to 8 bits: half of 1/127 of a block's largest
    if block <= 128:  # ONNX Runtime rounds activations in the weight's blocks too
        assert np.allclose(found, onnxruntimes_own(path, x).reshape(-1), rtol=0, atol=1e-5 * room.max())


@needs_library
def test_one_number_at_a_time(tmp_path):
    """Every input reaches its own weights: with a single 1 in the row, the product is that row of the weight."""
    q, scales = weight(64, 48, 32)
    engine = make_engine("onnxruntime", saved(tmp_path, product(q, scales)), "decode")
    for place, expected in enumerate(dequantise(q, scales)):
        x = np.zeros((1, 1, 64), np.float32)
        x[0, 0, place] = 1
        assert np.allclose(engine.run({"x": x})["y"][0, 0], expected, rtol=1e-6)


@needs_library
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 15, 100, 255])
def test_a_number_that_is_not_finite_does_not_get_lost(tmp_path, value, place):
    q, scales = weight(256, 32, 128)
    engine = make_engine("onnxruntime", saved(tmp_path, product(q, scales)), "decode")
    x = row(256)
    x[0, 0, place] = value
    with pytest.raises(EngineOutputError, match="'y' has 32 values that are not finite"):
        engine.run({"x": x})


@needs_library
@pytest.mark.parametrize("value", [0.0, 1e-38, -1e-45, 3e-37])
def test_next_to_nothing_gives_next_to_nothing(tmp_path, value):
    q, scales = weight(128, 16, 128)
    y = run(saved(tmp_path, product(q, scales)), np.full((1, 1, 128), value, np.float32))
    assert np.all(np.abs(y) < 1e-30)


@needs_library
@pytest.mark.parametrize("axes", [1, 2, 9, 32])
def test_one_row_may_have_any_number_of_axes(tmp_path, axes):
    q, scales = weight(64, 32, 32)
    model = product(q, scales)
    for value in (model.graph.input[0], model.graph.output[0]):
        width = value.type.tensor_type.shape.dim[-1].dim_value
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, [1] * (axes - 1) + [width]))
    path = saved(tmp_path, model)
    assert is_ours(path)
    found = run(path, row(64).reshape([1] * (axes - 1) + [64]))
    exact = row(64) @ dequantise(q, scales)
    assert np.allclose(found.reshape(-1), exact.reshape(-1), atol=0.02 * np.abs(exact).max())


@needs_library
def test_it_runs_in_the_middle_of_a_graph_and_once_for_a_shared_weight(tmp_path):
    q, scales = weight(64, 64, 64)
    model = product(q, scales)
    graph = model.graph
    graph.node[1].output[0] = "a"
    graph.node.append(helper.make_node("Tanh", ["a"], ["b"]))
    graph.node.append(helper.make_node("MatMul", ["b", "w"], ["y"]))
    path = saved(tmp_path, model)
    replaced = replace_products(path, find_library())
    assert [node.op_type for node in onnx.load_from_string(replaced.model).graph.node] == [
        "Int4Product", "Tanh", "Int4Product"
    ]  # fmt: skip
    assert list(replaced.weights) == ["q.packed"]
    exact = np.tanh(row(64) @ dequantise(q, scales)) @ dequantise(q, scales)
    assert np.allclose(run(path, row(64)), exact, atol=0.05 * np.abs(exact).max())


def not_ours():
    q, scales = weight(64, 32, 32)
    fp16 = product(q, scales, kind=np.float16)
    narrow = product(*weight(64, 24, 32))
    stored_as_numbers = product(q, scales)
    stored = stored_as_numbers.graph.initializer[0]
    stored.CopyFrom(helper.make_tensor("q", TensorProto.INT4, q.shape, q.reshape(-1)))
    half = product(q, scales)
    half.graph.node[0].attribute.append(helper.make_attribute("output_dtype", TensorProto.FLOAT16))
    unknown = product(q, scales)
    unknown.graph.input[0].type.tensor_type.ClearField("shape")
    return {
        "several rows": product(q, scales, rows=2),
        "rows of which nothing is known": unknown,
        "dequantised to float16": half,
        "float16": fp16,
        "outputs that 16 does not divide": narrow,
        "weights that are not raw bytes": stored_as_numbers,
        "blocks along the outputs": product(q, np.ones((64, 1), np.float32), axis=1, block=32),
    }


@needs_library
@pytest.mark.parametrize("name", not_ours())
def test_other_products_stay_with_onnxruntime(tmp_path, name):
    model = not_ours()[name]
    path = saved(tmp_path, model)
    assert replace_products(path, find_library()) is None
    if name not in ("rows of which nothing is known", "dequantised to float16"):  # which the engine refuses
        assert not is_ours(path)


def test_exact_means_exact(tmp_path):
    q, scales = weight(128, 32, 64)
    found = run(saved(tmp_path, product(q, scales)), row(128), exact=True)
    assert np.allclose(found, row(128) @ dequantise(q, scales), rtol=1e-5, atol=1e-5)


def test_without_the_library_onnxruntimes_own_kernel_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(onnxruntime_engine, "find_library", lambda: None)
    q, scales = weight(128, 32, 64)
    path = saved(tmp_path, product(q, scales))
    assert not is_ours(path)
    assert np.array_equal(run(path, row(128)), onnxruntimes_own(path, row(128)))


@needs_library
def test_the_session_reads_the_packed_weights_where_they_are(tmp_path):
    """A copy would take the model's memory twice; and each of two weights of one shape is read in its own place."""
    q, scales = weight(64, 32, 32)
    others = helper.make_tensor("others", TensorProto.INT4, q.shape, pack(weight(64, 32, 32, seed=9)[0]), raw=True)
    nodes = [
        helper.make_node("DequantizeLinear", ["others", "scales"], ["v"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "v"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]
    engine = make_engine("onnxruntime", saved(tmp_path, extended(product(q, scales), nodes, [others])), "decode")
    before = engine.run({"x": row(64)})["y"]
    (_, first), (_, second) = engine._weights.values()
    second[:] = first
    assert np.any(before != 0)
    assert np.all(engine.run({"x": row(64)})["y"] == 0)


@needs_library
def test_the_session_does_not_keep_the_bytes_that_it_was_made_of(tmp_path):
    table = numpy_helper.from_array(np.ones((100, 32), np.float32), "table")
    sums = [helper.make_node("MatMul", ["table", "transposed"], ["y"])]
    model = extended(product(*weight(64, 32, 32)), sums, [table])
    model.graph.node.insert(2, helper.make_node("Reshape", ["a", "column"], ["transposed"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([32, 1]), "column"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [100, 1]))
    engine = make_engine("onnxruntime", saved(tmp_path, model), "decode")
    assert "own INT4 product" in engine.version
    assert not [name for name, each in vars(engine._session).items() if isinstance(each, bytes) and len(each) > 1000]


@needs_library
@pytest.mark.parametrize("strips", [1, 3, 400])
def test_a_packed_weight_begins_at_a_line_of_the_cache(strips):
    q, scales = weight(64, 16 * strips, 32)
    packed = find_library().pack(np.frombuffer(pack(q), np.uint8), scales, q.shape, 32)
    assert packed.ctypes.data % 64 == 0
    assert packed.size == strips * (64 * 8 + 2 * 64)


@needs_library
def test_weights_kept_beside_the_file_are_read(tmp_path):
    q, scales = weight(128, 64, 128)
    path = tmp_path / "product.onnx"
    onnx.save(product(q, scales), str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size >= q.size / 2
    assert is_ours(path)
    inline = saved(tmp_path, product(q, scales))
    assert np.array_equal(run(path, row(128)), run(inline, row(128)))


@needs_library
def test_a_file_that_the_onnx_package_refuses_is_run_as_it_is(tmp_path):
    """It reads no data through a link, as a bundle of links to a cache has it; ONNX Runtime does."""
    q, scales = weight(128, 64, 128)
    path = tmp_path / "product.onnx"
    onnx.save(product(q, scales), str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").rename(tmp_path / "cached")
    (tmp_path / "weights.bin").symlink_to("cached")
    assert np.array_equal(run(path, row(128)), onnxruntimes_own(path, row(128)))


@needs_library
@pytest.mark.parametrize("content", [b"", b"block_size", None])
def test_a_file_that_is_no_graph_is_refused_in_onnxruntimes_words(tmp_path, content):
    path = tmp_path / "product.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match=r"ONNXRuntimeError.*product\.onnx"):
        make_engine("onnxruntime", path, "decode")


@needs_library
def test_what_does_not_fit_into_one_message_is_not_read(tmp_path, monkeypatch):
    """A message has 2 GiB at most: what is too much is known before it is read."""
    model = product(*weight(128, 64, 128))
    model.graph.node.append(helper.make_node("Identity", ["table"], ["z"]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(5000, np.float32), "table"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [5000]))
    path = tmp_path / "product.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert replace_products(path, find_library()) is not None
    monkeypatch.setattr("vla_runtime.engines.int4.graph.MOST_BYTES", 15000)
    monkeypatch.setattr(onnx, "load_external_data_for_model", lambda *_: pytest.fail("it was read"))
    assert replace_products(path, find_library()) is None


@needs_library
@pytest.mark.parametrize("tensor", ["q", "scales"])
def test_a_weight_shorter_than_it_says_is_refused_and_not_read_beyond(tmp_path, tensor):
    model = product(*weight(128, 64, 128))
    stored = next(each for each in model.graph.initializer if each.name == tensor)
    stored.raw_data = stored.raw_data[:-16]
    with pytest.raises(EngineError, match=r"'decode'.*product\.onnx"):
        make_engine("onnxruntime", saved(tmp_path, model), "decode")


@needs_library
def test_a_scale_of_another_shape_is_not_packed(tmp_path):
    model = product(*weight(128, 64, 128))
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones((1, 32), np.float32), "scales"))
    assert replace_products(saved(tmp_path, model), find_library()) is None


def extended(model, nodes, constants=(), inputs=()):
    """Return ``model`` with y renamed to a, and ``nodes`` that make y."""
    graph = model.graph
    graph.node[1].output[0] = "a"
    graph.node.extend(nodes)
    graph.initializer.extend(constants)
    graph.input.extend(inputs)
    return model


@needs_library
@pytest.mark.parametrize("condition", [True, False])
def test_what_a_graph_inside_reads_is_kept(tmp_path, condition):
    """The branches of an If read names of the graph around them: here a constant, and the weight itself."""
    q, scales = weight(64, 32, 32)
    value = helper.make_tensor_value_info("branch", TensorProto.FLOAT, [1, 1, 32])
    branches = {
        name: helper.make_graph([helper.make_node(kind, inputs, ["branch"])], name, [], [value])
        for name, kind, inputs in (("then_branch", "Add", ["a", "bias"]), ("else_branch", "MatMul", ["x", "w"]))
    }
    model = extended(
        product(q, scales),
        [helper.make_node("If", ["condition"], ["y"], **branches)],
        [numpy_helper.from_array(np.ones(32, np.float32), "bias")],
        [helper.make_tensor_value_info("condition", TensorProto.BOOL, [])],
    )
    engine = make_engine("onnxruntime", saved(tmp_path, model), "decode")
    found = engine.run({"x": row(64), "condition": np.array(condition)})["y"]
    exact = row(64) @ dequantise(q, scales) + condition
    assert "own INT4 product" in engine.version
    assert np.allclose(found, exact, atol=0.02 * np.abs(exact).max())


@needs_library
@pytest.mark.parametrize("block", [32, 16])
def test_values_shared_by_two_weights_have_the_scales_of_each(tmp_path, block):
    q, scales = weight(64, 32, 32)
    others = weight(64, 32, block, seed=9)[1]
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "others"], ["v"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "v"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    model = extended(product(q, scales), nodes, [numpy_helper.from_array(others, "others")])
    exact = row(64) @ (dequantise(q, scales) + dequantise(q, others))
    assert np.allclose(run(saved(tmp_path, model), row(64)), exact, atol=0.02 * np.abs(exact).max())


@needs_library
def test_shapes_that_follow_from_the_product_are_known_as_before(tmp_path):
    """ONNX Runtime does not know what shape our operator gives; the engine needs that of every output."""
    flat = [helper.make_node("Reshape", ["a", "shape"], ["y"])]
    model = extended(product(*weight(64, 32, 32)), flat, [numpy_helper.from_array(np.array([-1]), "shape")])
    for name in ("y", "a"):
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    del model.graph.output[0]
    engine = make_engine("onnxruntime", saved(tmp_path, model), "decode")
    assert "own INT4 product" in engine.version
    assert {name: each.shape for name, each in engine.outputs.items()} == {"y": (32,), "a": (1, 1, 32)}


@needs_library
def test_an_input_of_another_length_is_refused_when_the_file_is_loaded(tmp_path):
    model = product(*weight(64, 32, 32))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 32
    with pytest.raises(EngineError, match="cannot load"):
        make_engine("onnxruntime", saved(tmp_path, model), "decode")


@needs_library
def test_the_name_of_the_packed_weight_may_be_taken(tmp_path):
    q, scales = weight(64, 32, 32)
    ones = numpy_helper.from_array(np.ones(32, np.float32), "q.packed")
    path = saved(tmp_path, extended(product(q, scales), [helper.make_node("Add", ["a", "q.packed"], ["y"])], [ones]))
    exact = row(64) @ dequantise(q, scales) + 1
    assert is_ours(path)
    assert np.allclose(run(path, row(64)), exact, atol=0.02 * np.abs(exact).max())


@needs_library
def test_a_constant_that_is_an_input_too_may_be_given_another_value(tmp_path):
    model = product(*weight(64, 32, 32))
    model.graph.input.append(helper.make_tensor_value_info("scales", TensorProto.FLOAT, [2, 32]))
    assert not is_ours(saved(tmp_path, model))


@needs_library
def test_an_operator_of_another_domain_is_not_ours_to_replace(tmp_path):
    """It may do anything: this one negates the product."""
    q, scales = weight(64, 32, 32)
    model = product(q, scales)
    model.graph.node[1].domain = "other"
    nodes = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Neg", ["c"], ["d"])]
    negated = helper.make_function("other", "MatMul", ["a", "b"], ["d"], nodes, model.opset_import[:1])
    model.functions.append(negated)
    model.opset_import.append(helper.make_opsetid("other", 1))
    exact = -row(64) @ dequantise(q, scales)
    assert np.allclose(run(saved(tmp_path, model), row(64)), exact, atol=0.02 * np.abs(exact).max())


def session_with(folder, **sizes):
    """Return a session of our operator whose sizes are other than its weight's (128, 64) in blocks of 128.

    Its weight comes with it: the session only reads it.
    """
    import onnxruntime

    library = find_library()
    replaced = replace_products(saved(folder, product(*weight(128, 64, 128))), library)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library.path))
    model = onnx.load_from_string(replaced.model)
    for each in model.graph.node[0].attribute:
        each.i = sizes.get(each.name, each.i)
    packed = onnxruntime.OrtValue.ortvalue_from_numpy(replaced.weights["q.packed"])
    options.add_initializer("q.packed", packed)
    return onnxruntime.InferenceSession(model.SerializeToString(), options), packed


@needs_library
@pytest.mark.parametrize(("sizes", "words"), [({"K": 256}, "not K long"), ({"N": 80}, "of another size"),
                                              ({"block_size": 64}, "of another size")])  # fmt: skip
def test_a_weight_of_another_size_is_refused_and_not_read_beyond(tmp_path, sizes, words):
    session, _weight = session_with(tmp_path, **sizes)
    with pytest.raises(Exception, match=words):
        session.run(None, {"x": row(128)})


@needs_library
@pytest.mark.parametrize(
    ("name", "value"), [("K", 100), ("K", 1 << 40), ("N", 8), ("block_size", 0), ("block_size", -16)]
)
def test_sizes_that_it_cannot_compute_are_refused(tmp_path, name, value):
    with pytest.raises(Exception, match="sizes that it cannot compute"):
        session_with(tmp_path, **{name: value})


@pytest.mark.parametrize("content", [None, b"", b"\x7fELF of another machine"])
def test_a_library_that_is_missing_or_does_not_load_is_not_taken(monkeypatch, tmp_path, content):
    """The search looks beside the module only."""
    if content is not None:
        (tmp_path / f"_product{sysconfig.get_config_var('EXT_SUFFIX')}").write_bytes(content)
    monkeypatch.setattr(library_module, "__file__", str(tmp_path / "library.py"))
    find_library.cache_clear()
    try:
        assert library_module.find_library() is None
    finally:
        find_library.cache_clear()


def test_the_setup_compiles_it_wherever_there_is_a_compiler():
    """Else the tests above would be skipped for ever, and the fast path be lost without a word."""
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler here")
    assert list(Path(library_module.__file__).parent.glob("_product*.so"))
