"""Where the package's data files are: beside the sources in a checkout, under share/vla_runtime once installed."""

import sys
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent


def share(*parts: str) -> Path:
    """Return the path of a data file of the package, e.g. ``share("config", "robots", "so101_sim.yaml")``.

    A checkout is recognised by its package.xml; otherwise the ament index is asked, then ``sys.prefix``.
    The path is returned whether or not it exists: the caller names it in its own error.
    """
    return _share_root().joinpath(*parts)


def _share_root() -> Path:
    if (_CHECKOUT / "package.xml").is_file():
        return _CHECKOUT
    try:
        from ament_index_python.packages import get_package_share_directory

        return Path(get_package_share_directory("vla_runtime"))
    except (ImportError, LookupError):
        return Path(sys.prefix) / "share" / "vla_runtime"
