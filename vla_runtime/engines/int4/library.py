"""The compiled library: where it is, whether this processor runs it, and its packing of weights."""

import ctypes
import functools
import sysconfig
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LINE = 64


class _Shape(ctypes.Structure):
    _fields_ = [("inputs", c_int64), ("outputs", c_int64), ("block", c_int64)]


@dataclass(frozen=True)
class Library:
    """``path``: of the file, for ONNX Runtime to register."""

    path: Path
    _loaded: ctypes.CDLL

    def fits(self, inputs: int, outputs: int, block: int) -> bool:
        """Whether a weight (inputs, outputs) in blocks of ``block`` inputs can be packed."""
        return bool(self._loaded.vla_int4_fits(_Shape(inputs, outputs, block)))

    def pack(self, q: np.ndarray, scales: np.ndarray, shape: tuple[int, int], block: int) -> np.ndarray:
        """Return a weight of ``shape`` (K, N) in the library's form, uint8.

        ``q``: ONNX's INT4 bytes, uint8 (K * N / 2,); ``scales`` (K / block, N) float32. Sizes have to fit each other.
        """
        (k, n), sizes = shape, _Shape(*shape, block)
        q, scales = np.ascontiguousarray(q, np.uint8), np.ascontiguousarray(scales, np.float32)
        if not self.fits(k, n, block) or q.size * 2 != k * n or scales.shape != (k // block, n):
            raise ValueError(f"no weight {shape} in blocks of {block}: {q.size} bytes, scales {scales.shape}")
        packed = _aligned(self._loaded.vla_int4_size(sizes))
        self._loaded.vla_int4_pack(sizes, q.ctypes.data, scales.ctypes.data, packed.ctypes.data)
        return packed


@functools.cache
def find_library() -> Library | None:
    """Return the library; None where it was not compiled, does not load, or the processor lacks the instructions."""
    path = Path(__file__).parent / f"_product{sysconfig.get_config_var('EXT_SUFFIX')}"
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:  # no such file, one of another machine, or a disk from which nothing may be executed
        return None
    loaded.vla_int4_fits.argtypes = loaded.vla_int4_size.argtypes = [_Shape]
    loaded.vla_int4_size.restype = ctypes.c_size_t
    loaded.vla_int4_pack.argtypes = [_Shape, c_void_p, c_void_p, c_void_p]
    loaded.vla_int4_pack.restype = None
    return Library(path, loaded) if loaded.vla_int4_supported() else None


def _aligned(size: int) -> np.ndarray:
    """Return ``size`` bytes of which loads of 64 bytes do not straddle two lines of the cache.

    NumPy asks for huge pages, as far as there are any: they are read a tenth faster than small ones.
    """
    array = np.empty(size + LINE - 1, np.uint8)
    first = -array.ctypes.data % LINE
    return array[first : first + size]
