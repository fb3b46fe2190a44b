"""Makes a new bundle out of one whose stage has been quantised."""

import shutil
from dataclasses import asdict
from pathlib import Path

import onnx
import yaml

from vla_runtime.errors import UserError
from vla_runtime.policy.bundle import POLICY_FILE, Bundle, load_bundle, sha256_of
from vla_runtime.toolchain.quantize.fusion import inspect_fusion
from vla_runtime.toolchain.quantize.stage import StageReport


def write_quantised(
    source: Bundle,
    stage: str,
    precision: str,
    model: onnx.ModelProto,
    report: StageReport,
    out: Path,
    calibration: dict,
) -> Bundle:
    """Write a copy of ``source`` with ``model`` as its ``stage``, and return it loaded and checked.

    The checkpoint's own answers go along, whatever the stages are stored as; parity records do not, since they belong
    to other files. Where ``source`` was converted itself, the new bundle still names the first one, which is what
    parity has to compare with. Raises UserError when ONNX Runtime would not fuse INT4 weights, since the stage would
    be some hundred times slower than meant.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in source.policy.files:
        target = out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.file(name), target)
    file = source.policy.stages[stage].file
    onnx.save(model, str(out / file))
    if precision == "int4":
        _check_fused(out / file, len(report.layers))
    content = yaml.safe_load((source.path / POLICY_FILE).read_text(encoding="utf-8"))
    content["stages"][stage]["precision"] = precision
    content["files"] = {name: sha256_of(out / name) for name in source.policy.files}
    content["provenance"] = {**source.policy.provenance, **_provenance(source, stage, precision, report, calibration)}
    (out / POLICY_FILE).write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return load_bundle(out)


def _check_fused(path: Path, layers: int) -> None:
    fusion = inspect_fusion(path)
    if fusion.unfused or fusion.fused != layers:
        raise UserError(
            f"{path}: ONNX Runtime fused {fusion.fused} of {layers} INT4 layers ({fusion.unfused} "
            "would be dequantised at every call); this graph's layout is not one that it knows"
        )


def _provenance(source: Bundle, stage: str, precision: str, report: StageReport, calibration: dict) -> dict:
    before, file = source.policy.provenance, source.policy.stages[stage].file
    here = {
        "name": source.policy.name,
        "policy_sha256": sha256_of(source.path / POLICY_FILE),
        file: source.policy.files[file],
    }
    made = {
        "stage": stage,
        "precision": precision,
        "method": report.method,
        **calibration,
        "layers": {each.output: _layer(each) for each in report.layers},
        "kept": {each.output: each.why for each in report.skipped},
    }
    if "quantization" in before:
        made["earlier"] = before["quantization"]
    return {"quantized_from": before.get("quantized_from", here), "quantization": made}


def _layer(report) -> dict:
    content = asdict(report)
    return {
        "shape": list(content["shape"]),
        "block": content["block"],
        "rtn_error": round(content["rtn_error"], 8),
        "error": round(content["error"], 8),
    }
