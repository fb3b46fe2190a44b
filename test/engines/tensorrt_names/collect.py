"""Writes down the names that a version of TensorRT's Python bindings has, without a GPU and without its libraries.

    pip download --no-deps tensorrt-cu12-bindings==10.3.0 && unzip -d unpacked *.whl
    python test/engines/tensorrt_names/collect.py unpacked > test/engines/tensorrt_names/10.3.0.json

The extension module needs nine functions of NVIDIA's libraries to load; a stub that returns 0 for each is enough to
read the names that pybind registers. Nothing of TensorRT runs. The JSON holds facts (names) only.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CLASSES = (
    "Builder", "INetworkDefinition", "OnnxParser", "ParserError", "IBuilderConfig", "ITimingCache", "IHostMemory",
    "Runtime", "ICudaEngine", "IExecutionContext", "IProgressMonitor", "Logger", "TensorIOMode", "MemoryPoolType",
    "NetworkDefinitionCreationFlag", "BuilderFlag", "DataType",
)  # fmt: skip
FUNCTIONS = (
    "createInferBuilder_INTERNAL", "createInferRuntime_INTERNAL", "createInferRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL", "createNvOnnxParserRefitter_INTERNAL", "getPluginRegistry",
    "getBuilderPluginRegistry", "initLibNvInferPlugins", "getNvOnnxParserVersion",
)  # fmt: skip
READ = f"""
import json, sys
sys.path.insert(0, sys.argv[1])
import importlib.util
spec = importlib.util.spec_from_file_location("tensorrt", sys.argv[1] + "/tensorrt.so")
trt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(trt)
print(json.dumps({{name: sorted(a for a in dir(getattr(trt, name)) if not a.startswith("_")) for name in {CLASSES!r}}}))
"""


def main(wheel: Path) -> None:
    module = next(wheel.rglob("tensorrt.so"))
    wanted = subprocess.run(["readelf", "-d", module], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"\[(libnv[^\]]+)\]", wanted)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "stub.c"
        source.write_text("\n".join(f"void* {name}(void) {{ return 0; }}" for name in FUNCTIONS))
        for library in libraries:
            subprocess.run(
                ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", f"{folder}/{library}", source], check=True
            )
        names = subprocess.run(
            [sys.executable, "-c", READ, module.parent],
            env={**os.environ, "LD_LIBRARY_PATH": folder}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    package = ast.parse((module.parent / "__init__.py").read_text())
    functions = sorted(node.name for node in package.body if isinstance(node, ast.FunctionDef))
    print(json.dumps({"module": [*functions, "__version__"], "classes": json.loads(names)}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
