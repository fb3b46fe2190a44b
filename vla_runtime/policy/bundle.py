"""Bundles on disk: load, verify, and say exactly what is wrong.

A bundle is a directory with policy.yaml, ONNX stages, a tokenizer and parity.json. Nothing in it is unpickled: only
.onnx, .safetensors, .yaml, .json and .urdf are read, and a path that leaves the directory is refused.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml
from pydantic import ValidationError

from vla_runtime.policy.bundle_model import FORMAT, PolicyModel
from vla_runtime.policy.contract import check_contract
from vla_runtime.policy.errors import BundleError
from vla_runtime.policy.graph import check_graphs

POLICY_FILE = "policy.yaml"
PARITY_FILE = "parity.json"
SUFFIXES = frozenset({".onnx", ".data", ".safetensors", ".json", ".yaml", ".urdf"})


@dataclass(frozen=True)
class Bundle:
    """A loaded bundle. ``policy`` is the validated policy.yaml."""

    path: Path
    policy: PolicyModel

    def file(self, name: str) -> Path:
        """Return the path of a file of the bundle; BundleError when it leaves the bundle or is not listed."""
        if name not in self.policy.files:
            raise BundleError(f"{self.path / POLICY_FILE}: '{name}' is used but has no SHA-256 under files")
        return inside(self.path, name)

    def stage_path(self, stage: str) -> Path:
        """Return the path of a stage's ONNX file."""
        if stage not in self.policy.stages:
            raise BundleError(f"{self.path}: no stage '{stage}'; this bundle has {sorted(self.policy.stages)}")
        return self.file(self.policy.stages[stage].file)

    def hashes(self) -> dict[str, str]:
        """SHA-256 by file name, as declared (and, after ``load_bundle``, verified)."""
        return dict(self.policy.files)


def load_bundle(path: str | Path, *, verify: bool = True) -> Bundle:
    """Read and check the bundle at ``path``.

    Raises BundleError naming the file, the field and the value for: a missing or malformed policy.yaml, an unknown
    field, a path outside the bundle, a missing file, a wrong SHA-256, and a contradiction between policy.yaml and the
    ONNX graphs (horizon, widths, cameras). ``verify=False`` leaves out hashes and graphs, for tools that write them.
    """
    root = Path(path)
    if not root.is_dir():
        raise BundleError(f"bundle {root}: no such directory")
    bundle = Bundle(root, read_policy(root / POLICY_FILE))
    _check_file_list(bundle)
    if verify:
        _check_hashes(bundle)
        check_contract(bundle.policy, str(root / POLICY_FILE))
        check_graphs(bundle.policy, bundle.file)
    return bundle


def read_policy(path: Path) -> PolicyModel:
    """Parse and validate one policy.yaml; BundleError with every faulty field and its value."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{path.parent}: no {path.name}; is this a bundle directory?") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BundleError(f"{path}: not readable as YAML: {error}") from None
    if not isinstance(content, dict):
        raise BundleError(f"{path}: expected a mapping at the top, found {type(content).__name__}")
    if content.get("format") != FORMAT:
        raise BundleError(f"{path}: format is {content.get('format')!r}, this version reads {FORMAT!r}")
    try:
        return PolicyModel.model_validate(content)
    except ValidationError as error:
        faults = "\n".join(f"  {_describe(fault)}" for fault in error.errors(include_url=False))
        raise BundleError(f"{path}: {error.error_count()} field(s) are wrong:\n{faults}") from None


def inside(root: Path, name: str) -> Path:
    """Return ``root/name``; BundleError when it is absolute, climbs out, or is a link that leads out."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\\" in name or ":" in name:
        raise BundleError(f"bundle {root}: path '{name}' leaves the bundle; only files inside it are read")
    target = root / relative
    if not target.resolve().is_relative_to(root.resolve()):
        raise BundleError(f"bundle {root}: '{name}' is a link that leads out of the bundle; copy the file in")
    return target


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a whole file."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check_file_list(bundle: Bundle) -> None:
    policy = bundle.policy
    for name in policy.files:
        inside(bundle.path, name)
        if PurePosixPath(name).suffix not in SUFFIXES:
            raise BundleError(
                f"bundle {bundle.path}: '{name}' has a type that is never loaded; allowed: {sorted(SUFFIXES)}"
            )
    used = {f"stages.{stage}.file": model.file for stage, model in policy.stages.items()}
    if policy.instruction is not None:
        used["instruction.tokenizer"] = policy.instruction.tokenizer
    if policy.action.urdf is not None:
        used["action.urdf"] = policy.action.urdf
    for field, name in used.items():
        inside(bundle.path, name)
        if name not in policy.files:
            raise BundleError(f"{bundle.path / POLICY_FILE}: {field} is '{name}', which has no SHA-256 under files")


def _check_hashes(bundle: Bundle) -> None:
    for name, expected in bundle.policy.files.items():
        path = bundle.file(name)
        if not path.is_file():
            raise BundleError(f"bundle {bundle.path}: file '{name}' is missing")
        found = sha256_of(path)
        if found != expected:
            raise BundleError(
                f"bundle {bundle.path}: '{name}' has changed: its SHA-256 is {found}, policy.yaml says {expected}. "
                "Restore the file, or export the bundle again."
            )


def _describe(fault) -> str:
    where = ".".join(str(part) for part in fault["loc"]) or "policy.yaml"
    text = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "missing":
        return f"{where}: missing"
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown field"
    value = fault["input"]
    shown = f" (found {value!r})" if isinstance(value, (str, int, float, bool, type(None))) else ""
    return f"{where}: {text}{shown}"
