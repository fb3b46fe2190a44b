"""The import directions that docs/architecture.md promises, read from the sources."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "vla_runtime"
ROS = {"rclpy", "sensor_msgs", "std_msgs", "trajectory_msgs", "diagnostic_msgs", "std_srvs", "lifecycle_msgs",
       "builtin_interfaces", "rcl_interfaces"}  # fmt: skip
SHARED = {"vla_runtime.errors", "vla_runtime.paths"}
# room: what it may import of the package's other rooms
MAY_IMPORT = {
    "control": set(),
    "engines": set(),
    "policy": {"engines"},
    "nodes": {"control", "policy", "engines"},
}


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the absolute name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
    return names


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_room_imports_only_what_it_may(room):
    files = list((PACKAGE / room).rglob("*.py"))
    assert files
    for path in files:
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "vla_runtime" and len(parts) > 1 and ".".join(parts[:2]) not in SHARED:
                assert parts[1] == room or parts[1] in MAY_IMPORT[room], f"{path} imports {name}"


@pytest.mark.parametrize("room", ["control", "engines", "policy"])
def test_room_knows_no_ros(room):
    for path in (PACKAGE / room).rglob("*.py"):
        for name in imports(path):
            assert name.split(".")[0] not in ROS, f"{path} imports {name}"


@pytest.mark.parametrize("room", [*MAY_IMPORT, "sim", "toolchain"])
def test_no_module_of_a_room_imports_itself_in_the_end(room):
    """Types count: who needs another's class to say what it takes depends on it."""
    modules = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
               for path in (PACKAGE / room).rglob("*.py")}  # fmt: skip
    graph = {name: imports(path) & set(modules) - {name} for name, path in modules.items()}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' <- '.join(error.args[1])}")


def test_control_reads_no_clock():
    for path in (PACKAGE / "control").rglob("*.py"):
        assert "time" not in {name.split(".")[0] for name in imports(path)}, f"{path} imports time"


def test_nothing_unpickles():
    for path in PACKAGE.rglob("*.py"):
        assert not {"pickle", "dill", "joblib"} & {name.split(".")[0] for name in imports(path)}, path
