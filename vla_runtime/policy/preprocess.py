"""Pixels to the model's tensor: resize, crop or pad, normalise, NCHW.

Written once for any array module ``xp``: NumPy here, CuPy on a GPU, where the picture stays on the device and
the result goes to the engine by DLPack. Resizing is separable bilinear with half-pixel centres (align_corners=False),
the rule of torch's ``interpolate``; with ``antialias`` the triangle filter widens by the reduction factor.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil, floor
from typing import Any

import numpy as np

from vla_runtime.policy.bundle_model import CameraModel
from vla_runtime.policy.errors import ObservationError

Array = Any


def images_tensor(images: Mapping[str, Array], cameras: Sequence[CameraModel], xp=np) -> Array:
    """Return the model's images tensor, (n_cameras, 3, h, w) float32, in the bundle's order of cameras.

    ``images``: (h, w, 3) uint8 RGB by camera name, in arrays of ``xp``.
    Raises ObservationError for a missing camera or a picture of another form.
    """
    missing = [camera.name for camera in cameras if camera.name not in images]
    if missing:
        raise ObservationError(f"no picture of camera {missing}; there are pictures of {sorted(images)}")
    return xp.stack([prepare(images[camera.name], camera, xp) for camera in cameras])


def prepare(image: Array, camera: CameraModel, xp=np) -> Array:
    """Return one camera's picture as (3, h, w) float32, normalised."""
    if image.ndim != 3 or image.shape[2] != 3 or str(image.dtype) != "uint8":
        raise ObservationError(
            f"camera '{camera.name}': expected (h, w, 3) uint8 RGB, found {str(image.dtype)}{list(image.shape)}"
        )
    pixels = resize_with_mode(image, camera, xp)
    scale = xp.asarray([1.0 / (255.0 * std) for std in camera.std], dtype=xp.float32)
    shift = xp.asarray([mean / std for mean, std in zip(camera.mean, camera.std)], dtype=xp.float32)
    return xp.transpose(pixels * scale - shift, (2, 0, 1))


def resize_with_mode(image: Array, camera: CameraModel, xp=np) -> Array:
    """Return (camera.height, camera.width, 3) float32 in 0..255, by the camera's resize mode.

    stretch: both axes scaled independently. pad: scaled to fit, the rest filled with ``pad_value``; centred, or
    ('top_left') all padding above and to the left, as LeRobot's SmolVLA does. crop: scaled to cover, centre kept.
    """
    height, width = int(image.shape[0]), int(image.shape[1])
    target_h, target_w = camera.height, camera.width
    if camera.resize == "stretch" or height * target_w == width * target_h:
        return resize(image, target_h, target_w, camera.antialias, xp)
    ratio = (
        max(width / target_w, height / target_h) if camera.resize == "pad" else min(width / target_w, height / target_h)
    )
    new_h, new_w = max(1, int(height / ratio)), max(1, int(width / ratio))
    if camera.resize == "crop":
        new_h, new_w = max(new_h, target_h), max(new_w, target_w)
        scaled = resize(image, new_h, new_w, camera.antialias, xp)
        top, left = (new_h - target_h) // 2, (new_w - target_w) // 2
        return scaled[top : top + target_h, left : left + target_w]
    new_h, new_w = min(new_h, target_h), min(new_w, target_w)
    scaled = resize(image, new_h, new_w, camera.antialias, xp)
    share = 1 if camera.pad_side == "top_left" else 2
    top, left = (target_h - new_h) // share, (target_w - new_w) // share
    canvas = xp.full((target_h, target_w, 3), 255.0 * camera.pad_value, dtype=xp.float32)
    canvas[top : top + new_h, left : left + new_w] = scaled
    return canvas


def resize(image: Array, height: int, width: int, antialias: bool, xp=np) -> Array:
    """Return (height, width, c) float32: bilinear, half-pixel centres. The same size returns the same values."""
    pixels = xp.asarray(image)
    if pixels.shape[0] != height:
        pixels = _along(pixels, 0, height, antialias, xp)
    if pixels.shape[1] != width:
        pixels = _along(pixels, 1, width, antialias, xp)
    return pixels.astype(xp.float32)


def _along(pixels: Array, axis: int, size: int, antialias: bool, xp) -> Array:
    """Sum of taps: each output row is a weighted sum of a few input rows, gathered tap by tap."""
    taps, weights = _taps(int(pixels.shape[axis]), size, antialias)
    shape = [1, 1, 1]
    shape[axis] = size
    total = None
    for tap, weight in zip(taps, weights):
        part = xp.take(pixels, xp.asarray(tap), axis=axis).astype(xp.float32) * xp.asarray(weight).reshape(shape)
        total = part if total is None else total + part
    return total


@lru_cache(maxsize=64)
def _taps(source: int, target: int, antialias: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (T, target) indices and (T, target) float32 weights of a one-dimensional triangle filter."""
    scale = source / target
    if not antialias or scale <= 1:
        centre = np.maximum((np.arange(target) + 0.5) * scale - 0.5, 0)
        low = np.minimum(np.floor(centre).astype(np.int64), source - 1)
        high = np.minimum(low + 1, source - 1)
        part = (centre - low).astype(np.float32)
        return np.stack([low, high]), np.stack([1 - part, part])
    count = int(ceil(scale)) * 2 + 1
    indices = np.zeros((count, target), np.int64)
    weights = np.zeros((count, target), np.float64)
    for i in range(target):
        centre = (i + 0.5) * scale
        first = max(0, floor(centre - scale + 0.5))
        last = min(source, floor(centre + scale + 0.5))
        span = np.arange(first, last)
        raw = np.maximum(0.0, 1.0 - np.abs((span - centre + 0.5) / scale))
        indices[: span.size, i] = span
        weights[: span.size, i] = raw / raw.sum()
    return indices, weights.astype(np.float32)
