"""Exit codes of every command: 2 for an option that cannot be meant, 1 for a file that is not there, no traceback."""

import pytest

from vla_runtime import cli
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle

OUT_OF_RANGE = [
    "demo --episodes 0",
    "demo --seed -1",
    "demo --domain 9999",
    "eval --bundle TINY --episodes 0",
    "eval --bundle TINY --threads 0",
    "eval --bundle TINY --delay nan",
    "sweep --bundle TINY --added 0,nan",
    "sweep --bundle TINY --threads 0",
    "monitor --once --period 0",
    "health --timeout -1",
    "record NEW --image-hz nan",
    "replay NONE --times 0",
    "replay NONE --latency -1",
    "replay NONE --set k=0",
    "budget --policy pi0 --device thor --control-hz nan",
    "budget --policy pi0 --device thor --threads 0",
    "export NONE --out NEW --joints a --fps inf",
    "export NONE --out NEW --joints a,a --fps 30",
    "quantize TINY --out NEW --random --count 0",
    "quantize TINY --out NEW --random --seed -1",
    "quantize TINY --out NEW --random --block 100",
    "build TINY --sm 86",
    "parity TINY --threads 0",
    "parity TINY --count 0",
    "parity TINY --record 0",
    "parity TINY --episodes -1",
    "parity TINY --seed -1",
    "bench policy TINY --threads -1",
    "bench policy TINY --rounds 0",
    "bench control --seconds nan",
    "bench control --joints 1",
    "bench faults --faults 0",
    "bench faults --seed -1",
    "bench faults --endurance nan",
    "bench soak --minutes nan",
]
UNKNOWN_NAMES = [
    "demo --fault hunger",
    "eval --bundle TINY --engine steam",
    "sweep --bundle TINY --blend melt",
    "monitor --once --namespace 1st",
    "health --topic a//b",
    "selftest --bundle TINY --engine steam",
    "record NEW --topics (",
    "replay NONE --set speed=3",
    "budget --policy pi0 --device toaster",
    "export NONE --out NEW --joints a --discrete b --fps 30",
    "quantize TINY --out NEW --stage brain --random",
    "build TINY --engine steam",
    "parity TINY --engine steam",
    "bench policy TINY --engine steam",
    "bench faults --kinds hunger",
]
MISSING_FILES = [
    "demo --bundle NONE",
    "eval --bundle NONE",
    "sweep --bundle NONE",
    "selftest --bundle NONE",
    "replay NONE",
    "replay NONE --infer NONE",
    "replay NONE --map NONE",
    "report NONE",
    "budget --bundle NONE",
    "budget --policy pi0 --device thor --measured NONE",
    "bundle check NONE",
    "export NONE --out NEW --joints a --fps 30",
    "quantize NONE --out NEW --random",
    "quantize TINY --out NEW --observations NONE",
    "build NONE",
    "parity NONE",
    "parity TINY --reference NONE",
    "parity TINY --observations NONE",
    "parity TINY --budgets NONE",
    "bench policy NONE",
    "bench policy TINY --against llama.cpp --peer NONE",
    "bench control --bundle NONE",
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_bundle(tmp_path_factory.mktemp("exit") / "tiny", proven=False)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        *((line, 2) for line in OUT_OF_RANGE + UNKNOWN_NAMES),
        *((line, 1) for line in MISSING_FILES),
    ],
)
def test_exit_code(tiny, tmp_path, capsys, line, code):
    places = {"TINY": str(tiny), "NONE": str(tmp_path / "none"), "NEW": str(tmp_path / "new")}
    try:
        found = cli.main([places.get(word, word) for word in line.split()])
    except SystemExit as end:  # argparse's own
        found = end.code
    said = capsys.readouterr().err
    assert found == code and f"vla {line.split()[0]}" in said, said
    assert not (tmp_path / "new").exists()
