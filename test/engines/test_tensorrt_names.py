"""Every TensorRT name in our sources exists in the bindings of every version that we claim (read by collect.py)."""

import ast
import json
from pathlib import Path

import pytest

ENGINES = Path(__file__).parents[2] / "vla_runtime" / "engines"
SOURCES = sorted(ENGINES.glob("tensorrt_*.py"))
VERSIONS = sorted(Path(__file__).with_name("tensorrt_names").glob("*.json"))
# By convention a variable (or attribute) of this name in those files is of this class.
KINDS = {
    "builder": "Builder",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "fault": "ParserError",
    "config": "IBuilderConfig",
    "cache": "ITimingCache",
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
}
# TensorRT-RTX only; test_tensorrt_build.py runs them for real.
RTX_ONLY = {"ComputeCapability", "num_compute_capabilities", "set_compute_capability"}


def uses(path: Path) -> set[tuple[str, str]]:
    """(class or 'trt', attribute) of everything that a source asks TensorRT's objects for."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Attribute) or node.attr == "__init__":
            continue
        base = node.value
        if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) and base.value.id == "trt":
            found.add((base.attr, node.attr))
        elif isinstance(base, ast.Attribute) and base.attr == "trt":
            found.add(("trt", node.attr))
        elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Attribute) and base.value.attr == "trt":
            found.add((base.attr, node.attr))
        elif isinstance(base, ast.Name) and base.id == "trt":
            found.add(("trt", node.attr))
        elif isinstance(base, ast.Name) and base.id in KINDS:
            found.add((KINDS[base.id], node.attr))
    found = {(kind, name) for kind, name in found if kind == "trt" or kind[0].isupper()}  # not `trt.__version__.split`
    return {(kind, name) for kind, name in found if name not in RTX_ONLY and kind not in RTX_ONLY}


ALL_USES = sorted(set().union(*map(uses, SOURCES)))


def test_the_reading_of_the_sources_finds_what_they_use():
    assert {"10.3.0", "10.16.1.11", "11.4.0.106"} == {path.stem for path in VERSIONS}
    expected = {
        ("trt", "Builder"),
        ("trt", "nptype"),
        ("Builder", "build_serialized_network"),
        ("OnnxParser", "parse_from_file"),
        ("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"),
        ("IExecutionContext", "execute_async_v3"),
        ("IExecutionContext", "set_tensor_address"),
        ("Runtime", "deserialize_cuda_engine"),
        ("ICudaEngine", "get_tensor_shape"),
        ("TensorIOMode", "INPUT"),
        ("IBuilderConfig", "progress_monitor"),
        ("ITimingCache", "serialize"),
    }
    assert expected <= set(ALL_USES)


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.stem)
def test_every_name_exists_in(version):
    names = json.loads(version.read_text())
    missing = [
        f"{kind}.{name}"
        for kind, name in ALL_USES
        if not (
            name in names["module"] or name in names["classes"] if kind == "trt" else name in names["classes"][kind]
        )
    ]
    assert not missing


@pytest.mark.parametrize(
    "name", ["execute_async_v2", "get_binding_index", "FP16", "INT8", "EXPLICIT_BATCH", "max_workspace_size"]
)
def test_names_that_are_gone_are_not_used(name):
    assert name not in {attribute for _, attribute in ALL_USES}


def test_flags_are_never_raw_numbers():
    """Values of enums moved between versions; a shift by anything but int(trt....) would be one written out."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift) and "trt" in ast.unparse(node):
                assert "int(" in ast.unparse(node.right)
