import shutil

import pytest
import yaml

from vla_runtime.policy.bundle import sha256_of
from vla_runtime.toolchain.tiny_bundle import write_tiny_bundle


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory):
    """A bundle that nobody changes."""
    return write_tiny_bundle(tmp_path_factory.mktemp("tiny") / "bundle")


@pytest.fixture
def own_bundle(tiny_bundle, tmp_path):
    """A copy to spoil."""
    return shutil.copytree(tiny_bundle, tmp_path / "bundle")


@pytest.fixture
def edit():
    """edit(bundle, change): apply ``change`` to the parsed policy.yaml and write it back."""

    def apply(bundle, change, rehash=()):
        path = bundle / "policy.yaml"
        content = yaml.safe_load(path.read_text())
        change(content)
        for name in rehash:
            content["files"][name] = sha256_of(bundle / name)
        path.write_text(yaml.safe_dump(content, sort_keys=False))

    return apply
