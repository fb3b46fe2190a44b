"""The decode step on ggml, the tensor library of llama.cpp, through its C interface (`make setup-llamacpp`).

The weights are Q4_0 (blocks of 32 with one float16 scale), made of the very INT4 values and scales that our engine
gets: the same numbers, four copies of each scale. ggml re-packs them for this processor, as llama.cpp does at load.
"""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path

import numpy as np

from vla_runtime.errors import UserError
from vla_runtime.toolchain.against.llama_layer import EPSILON, GROUP, Int4Linear, Layer

BLOCK = 32
BITS = 4 + 16 / BLOCK  # of one weight with its share of a scale
F32, Q4_0 = 0, 2  # enum ggml_type
LIBRARIES = ("libggml-base.so", "libggml-cpu.so", "libggml.so")

# Functions that are used: result, then arguments.
SIGNATURES = {
    "ggml_tensor_overhead": (c_size_t,),
    "ggml_graph_overhead": (c_size_t,),
    "ggml_new_tensor_2d": (c_void_p, c_void_p, c_int, c_int64, c_int64),
    "ggml_mul_mat": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_add": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_mul": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_silu": (c_void_p, c_void_p, c_void_p),
    "ggml_rms_norm": (c_void_p, c_void_p, c_void_p, c_float),
    "ggml_set_input": (None, c_void_p),
    "ggml_set_output": (None, c_void_p),
    "ggml_nbytes": (c_size_t, c_void_p),
    "ggml_new_graph": (c_void_p, c_void_p),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_free": (None, c_void_p),
    "ggml_backend_alloc_ctx_tensors_from_buft": (c_void_p, c_void_p, c_void_p),
    "ggml_backend_buft_name": (c_char_p, c_void_p),
    "ggml_backend_buffer_free": (None, c_void_p),
    "ggml_backend_tensor_set": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_tensor_get": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
    "ggml_backend_get_default_buffer_type": (c_void_p, c_void_p),
    "ggml_backend_free": (None, c_void_p),
    "ggml_gallocr_new": (c_void_p, c_void_p),
    "ggml_gallocr_alloc_graph": (c_bool, c_void_p, c_void_p),
    "ggml_gallocr_free": (None, c_void_p),
    "ggml_backend_cpu_init": (c_void_p,),
    "ggml_backend_cpu_set_n_threads": (None, c_void_p, c_int),
    "ggml_backend_cpu_reg": (c_void_p,),
    "ggml_backend_reg_dev_get": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_reg_get_proc_address": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_dev_supports_buft": (c_bool, c_void_p, c_void_p),
    "ggml_version": (c_char_p,),
    "ggml_log_set": (None, c_void_p, c_void_p),
}

SILENCE = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)(lambda level, text, data: None)


class _InitParams(Structure):
    _fields_ = [("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool)]


class Ggml:
    """The library's functions, found in ``folder``; UserError where it is not, or lacks one of them."""

    def __init__(self, folder: Path):
        missing = [name for name in LIBRARIES if not (folder / name).is_file()]
        if missing:
            raise UserError(f"{folder}: {missing} not found; build llama.cpp's ggml with `make setup-llamacpp`")
        self._loaded = [ctypes.CDLL(str((folder / name).resolve()), ctypes.RTLD_GLOBAL) for name in LIBRARIES]
        for name, (result, *arguments) in SIGNATURES.items():
            function = next((getattr(each, name) for each in self._loaded if hasattr(each, name)), None)
            if function is None:
                raise UserError(f"{folder}: ggml has no '{name}'; this version of it is not known here")
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)
        init = next(each.ggml_init for each in self._loaded if hasattr(each, "ggml_init"))
        init.restype, init.argtypes = c_void_p, [_InitParams]
        self.log_set(ctypes.cast(SILENCE, c_void_p), None)  # else a line for every weight
        self.context = lambda size: init(_InitParams(size, None, True))

    def weight_buffers(self) -> dict[str, int]:
        """Return the CPU's own buffer types by name: those that re-pack weights, best first, as llama.cpp asks them."""
        registry = self.backend_cpu_reg()
        address = self.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
        ask = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)(address)
        listed = ask(self.backend_reg_dev_get(registry, 0))
        found = {}
        index = 0
        while listed and listed[index]:
            found[self.backend_buft_name(listed[index]).decode()] = listed[index]
            index += 1
        return found


class GgmlDecode:
    """Layers as one ggml graph; ``step`` runs them on one token."""

    def __init__(self, ggml: Ggml, layers: Sequence[Layer], threads: int, buffer: str | None):
        self._g = g = ggml
        self._backend = g.backend_cpu_init()
        g.backend_cpu_set_n_threads(self._backend, threads)
        plain = g.backend_get_default_buffer_type(self._backend)
        kind = g.weight_buffers()[buffer] if buffer else plain
        self.name = f"ggml {g.version().decode()}, Q4_0 {buffer or 'not re-packed'}"
        count = sum(len(layer.linears) for layer in layers)
        self._weights = g.context((count + 1) * g.tensor_overhead())
        tensors = [
            {
                name: g.new_tensor_2d(self._weights, Q4_0, *map(int, linear.q.shape))
                for name, linear in layer.linears.items()
            }
            for layer in layers
        ]
        self._buffer = g.backend_alloc_ctx_tensors_from_buft(self._weights, kind)
        for layer, each in zip(layers, tensors):
            for name, linear in layer.linears.items():
                data = q4_0(linear)
                g.backend_tensor_set(each[name], data.ctypes.data, 0, data.nbytes)
        self._graph(layers[0].hidden, tensors, plain)

    def _graph(self, hidden: int, tensors: list[dict[str, int]], plain: int) -> None:
        g = self._g
        self._work = w = g.context((len(tensors) * 32 + 64) * g.tensor_overhead() + g.graph_overhead())
        self._x = x = g.new_tensor_2d(w, F32, hidden, 1)
        g.set_input(x)
        for t in tensors:
            n = g.rms_norm(w, x, EPSILON)
            q, k, v = (g.mul_mat(w, t[name], n) for name in "qkv")
            x = g.add(w, x, g.mul_mat(w, t["o"], g.add(w, g.add(w, q, k), v)))
            m = g.rms_norm(w, x, EPSILON)
            gate, up = (g.mul_mat(w, t[name], m) for name in ("gate", "up"))
            x = g.add(w, x, g.mul_mat(w, t["down"], g.mul(w, g.silu(w, gate), up)))
        self._y = x
        g.set_output(x)
        self._steps = g.new_graph(w)
        g.build_forward_expand(self._steps, x)
        self._allocator = g.gallocr_new(plain)
        if not g.gallocr_alloc_graph(self._allocator, self._steps):
            raise UserError("ggml could not allocate the decode step's intermediate tensors")
        self._out = np.empty(hidden, np.float32)

    def step(self, x: np.ndarray) -> np.ndarray:
        """Return the layers' output (hidden,) for ``x`` (hidden,) float32."""
        self._g.backend_tensor_set(self._x, x.ctypes.data, 0, x.nbytes)
        status = self._g.backend_graph_compute(self._backend, self._steps)
        if status != 0:
            raise UserError(f"ggml failed to compute the decode step: status {status}")
        self._g.backend_tensor_get(self._y, self._out.ctypes.data, 0, self._out.nbytes)
        return self._out.copy()

    def close(self) -> None:
        """Give the memory back."""
        g = self._g
        g.gallocr_free(self._allocator)
        g.backend_buffer_free(self._buffer)
        g.free(self._work)
        g.free(self._weights)
        g.backend_free(self._backend)


def q4_0(linear: Int4Linear) -> np.ndarray:
    """Return the weight in ggml's Q4_0: (N, K/32) records of a float16 scale and 16 bytes, as bytes (uint8).

    Byte j of a record holds input j in its low half and input j + 16 in its high half, each plus 8.
    """
    inputs, outputs = linear.q.shape
    values = (linear.q.T + 8).astype(np.uint8).reshape(outputs, inputs // BLOCK, BLOCK)
    made = np.empty((outputs, inputs // BLOCK, 2 + BLOCK // 2), np.uint8)
    scales = np.repeat(linear.scales.T.astype(np.float16), GROUP // BLOCK, axis=1)
    made[..., :2] = scales[..., None].view(np.uint8)
    made[..., 2:] = values[..., : BLOCK // 2] | (values[..., BLOCK // 2 :] << 4)
    return np.ascontiguousarray(made)
