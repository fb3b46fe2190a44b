"""From the fields of sensor_msgs/Image and CompressedImage to (h, w, 3) uint8 RGB, without importing ROS.

The encodings are those of sensor_msgs/image_encodings.hpp. YUV 4:2:2 is BT.601 in video range, as
cv_bridge (OpenCV) converts it.
"""

import io

import numpy as np

from vla_runtime.policy.errors import ImageError

# encoding: (bytes per pixel, channel order that gives RGB)
_PACKED = {
    "rgb8": (3, (0, 1, 2)),
    "8UC3": (3, (2, 1, 0)),  # OpenCV's generic type: by convention BGR
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "8UC4": (4, (2, 1, 0)),
    "mono8": (1, (0, 0, 0)),
    "8UC1": (1, (0, 0, 0)),
}
_PACKED_16 = {
    "rgb16": (3, (0, 1, 2)),
    "bgr16": (3, (2, 1, 0)),
    "rgba16": (4, (0, 1, 2)),
    "bgra16": (4, (2, 1, 0)),
    "mono16": (1, (0, 0, 0)),
}
# encoding: position of (first luma, second luma, u, v) in each group of four bytes
_YUV = {
    "yuv422": (1, 3, 0, 2),
    "uyvy": (1, 3, 0, 2),
    "yuv422_yuy2": (0, 2, 1, 3),
    "yuyv": (0, 2, 1, 3),
}
MAX_PIXELS = 40_000_000
"""A compressed picture that claims more is refused unread: 8K has 33 million. A few kilobytes may claim any size, by
damage or by malice, and reading 140 kB that claim 144 million takes 2.7 s and 1.5 GB."""
ENCODINGS = tuple(sorted({*_PACKED, *_PACKED_16, *_YUV}))


def decode_image(height: int, width: int, encoding: str, is_bigendian: bool, step: int, data) -> np.ndarray:
    """Return (height, width, 3) uint8 RGB from the fields of a sensor_msgs/Image.

    ``data``: bytes or anything with the buffer protocol; ``step``: bytes per row, padding included (honoured);
    ``is_bigendian`` matters for 16-bit encodings, which are reduced to their upper 8 bits.
    Raises ImageError for an encoding that is not known, a step shorter than a row, or too little data.
    """
    if height <= 0 or width <= 0:
        raise ImageError(f"image of {width}x{height} pixels has no content")
    if encoding in _PACKED:
        channels, order = _PACKED[encoding]
        rows = _rows(height, width * channels, encoding, step, data)
        return _pick(rows.reshape(height, width, channels), order)
    if encoding in _PACKED_16:
        channels, order = _PACKED_16[encoding]
        rows = _rows(height, width * channels * 2, encoding, step, data)
        upper = 0 if is_bigendian else 1
        return _pick(rows.reshape(height, width, channels, 2)[..., upper], order)
    if encoding in _YUV:
        if width % 2:
            raise ImageError(f"encoding '{encoding}' needs an even width, found {width}")
        return _yuv422(_rows(height, width * 2, encoding, step, data).reshape(height, width // 2, 4), _YUV[encoding])
    raise ImageError(f"image encoding '{encoding}' is not supported; publish one of {list(ENCODINGS)}")


def decode_compressed(image_format: str, data) -> np.ndarray:
    """Return (h, w, 3) uint8 RGB from the fields of a sensor_msgs/CompressedImage (JPEG or PNG).

    ``image_format`` is read for refusals only (e.g. 'rgb8; jpeg compressed bgr8'): the stream itself says what it is,
    and decoders give RGB whatever order the publisher started from. Raises ImageError for other formats, and for a
    picture of more than ``MAX_PIXELS``.
    """
    from PIL import Image, UnidentifiedImageError

    lowered = image_format.lower()
    if "compresseddepth" in lowered:
        raise ImageError(f"compressed format '{image_format}' is depth, not a colour picture")
    try:
        with Image.open(io.BytesIO(bytes(data)), formats=("JPEG", "PNG")) as picture:
            if picture.width * picture.height > MAX_PIXELS:
                raise Image.DecompressionBombError(f"{picture.width}x{picture.height} is above {MAX_PIXELS} pixels")
            if picture.mode == "I;16":
                return _pick((np.asarray(picture) >> 8).astype(np.uint8)[..., None], (0, 0, 0))
            return np.array(picture.convert("RGB"))
    except UnidentifiedImageError:  # its text has the address of our buffer, another one each time
        raise ImageError(f"compressed image of format '{image_format}' begins as neither JPEG nor PNG") from None
    except (Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        raise ImageError(
            f"compressed image of format '{image_format}' is not a readable JPEG or PNG: {error}"
        ) from None


def _rows(height: int, row_bytes: int, encoding: str, step: int, data) -> np.ndarray:
    stride = step or row_bytes  # some drivers leave step at 0: rows without padding
    if stride < row_bytes:
        raise ImageError(f"image step is {step} bytes, but a row of encoding '{encoding}' needs {row_bytes}")
    buffer = np.frombuffer(data, dtype=np.uint8)
    # The last row may come without its padding.
    if buffer.size < stride * (height - 1) + row_bytes:
        raise ImageError(
            f"image data has {buffer.size} bytes, but {height} rows of step {stride} need {stride * height}"
        )
    view = np.lib.stride_tricks.as_strided(buffer, (height, row_bytes), (stride, 1), writeable=False)
    return view if stride == row_bytes else np.ascontiguousarray(view)


def _pick(pixels: np.ndarray, order: tuple[int, int, int]) -> np.ndarray:
    """Reorder channels into a fresh contiguous array, so that nobody keeps the message's buffer alive."""
    out = np.empty((*pixels.shape[:2], 3), np.uint8)
    for channel, source in enumerate(order):
        out[..., channel] = pixels[..., source]
    return out


def _yuv422(pairs: np.ndarray, places: tuple[int, int, int, int]) -> np.ndarray:
    first, second, u_at, v_at = places
    u = pairs[..., u_at].astype(np.int32) - 128
    v = pairs[..., v_at].astype(np.int32) - 128
    # Video range (luma 16..235), fixed point with 20 bits: 1.596, 0.391, 0.813, 2.018, and 1.164 for luma.
    half = 1 << 19
    colours = (half + 1673527 * v, half - 409993 * u - 852492 * v, half + 2116026 * u)
    out = np.empty((pairs.shape[0], pairs.shape[1] * 2, 3), np.uint8)
    for offset, luma_at in ((0, first), (1, second)):
        luma = np.maximum(pairs[..., luma_at].astype(np.int32) - 16, 0) * 1220542
        for channel, colour in enumerate(colours):
            out[:, offset::2, channel] = np.clip((luma + colour) >> 20, 0, 255)
    return out
