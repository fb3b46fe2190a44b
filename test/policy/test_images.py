import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vla_runtime.policy.errors import ImageError
from vla_runtime.policy.images import ENCODINGS, decode_compressed, decode_image


def pad_rows(rows: np.ndarray, padding: int, last_row_padded: bool = True) -> tuple[int, bytes]:
    """(step, data) of rows with rubbish behind each."""
    height, row_bytes = rows.shape
    padded = np.concatenate([rows, np.full((height, padding), 0xAB, np.uint8)], axis=1).tobytes()
    return row_bytes + padding, padded if last_row_padded or not padding else padded[:-padding]


def to_encoding(rgb: np.ndarray, encoding: str) -> np.ndarray:
    """(h, row bytes) uint8 in the given 8-bit packed encoding: the inverse of what is tested."""
    alpha = np.full((*rgb.shape[:2], 1), 7, np.uint8)
    layout = {
        "rgb8": rgb,
        "bgr8": rgb[..., ::-1],
        "8UC3": rgb[..., ::-1],
        "rgba8": np.concatenate([rgb, alpha], 2),
        "bgra8": np.concatenate([rgb[..., ::-1], alpha], 2),
        "8UC4": np.concatenate([rgb[..., ::-1], alpha], 2),
    }[encoding]
    return np.ascontiguousarray(layout).reshape(rgb.shape[0], -1)


sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))


@settings(deadline=None, max_examples=60)
@given(
    sizes,
    st.sampled_from(["rgb8", "bgr8", "8UC3", "rgba8", "bgra8", "8UC4"]),
    st.integers(0, 5),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_packed_encodings_come_back_whatever_the_row_padding(size, encoding, padding, last_padded, seed):
    rgb = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    step, data = pad_rows(to_encoding(rgb, encoding), padding, last_padded)
    assert np.array_equal(decode_image(*size, encoding, False, step, data), rgb)


@settings(deadline=None, max_examples=40)
@given(
    sizes, st.sampled_from(["rgb16", "bgr16", "mono16"]), st.booleans(), st.integers(0, 3), st.integers(0, 2**32 - 1)
)
def test_16_bit_keeps_the_upper_byte_in_both_byte_orders(size, encoding, big, padding, seed):
    rgb = np.random.default_rng(seed).integers(0, 65536, (*size, 3), dtype=np.uint16)
    if encoding == "mono16":
        rgb[:] = rgb[..., :1]
    raw = {"rgb16": rgb, "bgr16": rgb[..., ::-1], "mono16": rgb[..., :1]}[encoding]
    rows = np.ascontiguousarray(raw.astype(">u2" if big else "<u2")).view(np.uint8).reshape(size[0], -1)
    step, data = pad_rows(rows, padding)
    assert np.array_equal(decode_image(*size, encoding, big, step, data), (rgb >> 8).astype(np.uint8))


def test_mono8_fills_three_channels():
    grey = np.array([[0, 128], [255, 3]], np.uint8)
    assert np.array_equal(decode_image(2, 2, "mono8", False, 2, grey.tobytes()), np.repeat(grey[..., None], 3, 2))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 6),
    st.integers(1, 5),
    st.sampled_from(["yuv422", "uyvy", "yuyv", "yuv422_yuy2"]),
    st.integers(0, 2**32 - 1),
)
def test_yuv422_follows_bt601_within_rounding(height, pairs, encoding, seed):
    rng = np.random.default_rng(seed)
    luma = rng.integers(16, 236, (height, pairs, 2))
    u, v = rng.integers(16, 241, (2, height, pairs))
    order = [u, luma[..., 0], v, luma[..., 1]] if encoding in ("yuv422", "uyvy") else [luma[..., 0], u, luma[..., 1], v]
    data = np.stack(order, -1).astype(np.uint8)
    got = decode_image(height, 2 * pairs, encoding, False, 4 * pairs, data.tobytes()).astype(float)
    y = 1.16438 * (luma.reshape(height, -1) - 16.0)
    cb, cr = (np.repeat(plane - 128.0, 2, axis=1) for plane in (u, v))
    want = np.stack([y + 1.59603 * cr, y - 0.39176 * cb - 0.81297 * cr, y + 2.01723 * cb], -1).clip(0, 255)
    assert np.abs(got - want).max() <= 1.0


def test_yuv422_of_a_grey_picture_is_grey():
    data = bytes([128, 126, 128, 126] * 4)
    assert np.ptp(decode_image(2, 4, "uyvy", False, 8, data)) == 0


@pytest.mark.parametrize("encoding", ["nv12", "bayer_rggb8", "32FC1", "RGB8", "", "jpeg"])
def test_unknown_encodings_are_refused_by_name(encoding):
    with pytest.raises(ImageError, match="rgb8") as caught:
        decode_image(2, 2, encoding, False, 6, bytes(12))
    assert f"'{encoding}'" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ((2, 4, "rgb8", False, 8, bytes(100)), "step"),
        ((2, 4, "rgb8", False, 12, bytes(23)), "23 bytes"),
        ((0, 4, "rgb8", False, 12, b""), "4x0"),
        ((1, 3, "uyvy", False, 6, bytes(6)), "even width"),
    ],
)
def test_contradicting_fields_are_refused(fields, word):
    with pytest.raises(ImageError, match=word):
        decode_image(*fields)


def test_result_does_not_share_memory_with_the_message():
    data = bytearray(12)
    image = decode_image(2, 2, "rgb8", False, 6, data)
    data[0] = 9
    assert image[0, 0, 0] == 0 and image.flags.writeable and image.flags.c_contiguous


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_listed_encoding_decodes(encoding):
    assert decode_image(2, 4, encoding, False, 0, bytes(2 * 4 * 8)).shape == (2, 4, 3)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P"])
def test_png_comes_back(mode):
    rgb = Image.fromarray(np.random.default_rng(1).integers(0, 256, (7, 5, 3), dtype=np.uint8)).convert(mode)
    stream = io.BytesIO()
    rgb.save(stream, "PNG")
    assert np.array_equal(
        decode_compressed("rgb8; png compressed rgb8", stream.getvalue()), np.asarray(rgb.convert("RGB"))
    )


def test_16_bit_png_is_reduced():
    stream = io.BytesIO()
    Image.fromarray(np.array([[0, 0x1234], [0xFFFF, 0x80FF]], np.uint16)).save(stream, "PNG")
    assert decode_compressed("mono16; png", stream.getvalue())[..., 0].tolist() == [[0, 0x12], [0xFF, 0x80]]


def test_jpeg_is_close():
    rows, columns = np.mgrid[0:32, 0:48]
    rgb = np.stack([rows * 4, columns * 4, rows + columns], -1).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(rgb).save(stream, "JPEG", quality=95)
    assert np.abs(decode_compressed("bgr8; jpeg compressed bgr8", stream.getvalue()).astype(int) - rgb).mean() < 3


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n" + bytes(30)])
def test_broken_streams_are_refused(data):
    with pytest.raises(ImageError, match="JPEG n?or PNG") as refusal:
        decode_compressed("jpeg", data)
    assert " at 0x" not in str(refusal.value)


def test_gif_and_depth_are_refused():
    stream = io.BytesIO()
    Image.new("RGB", (2, 2)).save(stream, "GIF")
    with pytest.raises(ImageError):
        decode_compressed("gif", stream.getvalue())
    with pytest.raises(ImageError, match="depth"):
        decode_compressed("16UC1; compressedDepth", b"")


@pytest.mark.parametrize(("width", "height"), [(8000, 5001), (13000, 13000), (30000, 30000)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_small_stream_that_claims_a_huge_picture_is_refused_unread(kind, width, height):
    """A few damaged bytes in a header: 144 million pixels took 2.7 s and 1.5 GB."""
    stream = io.BytesIO()
    Image.new("RGB", (64, 48)).save(stream, kind)
    layout = ">HH" if kind == "JPEG" else ">II"
    order = slice(None, None, -1 if kind == "JPEG" else 1)  # JPEG has the height first
    honest, claimed = (struct.pack(layout, *size[order]) for size in ((64, 48), (width, height)))
    data = stream.getvalue()
    assert data.count(honest) == 1
    data = data.replace(honest, claimed)
    if kind == "PNG":  # the header's own checksum is right: nobody damaged it
        data = data[:29] + struct.pack(">I", zlib.crc32(data[12:29])) + data[33:]
    with pytest.raises(ImageError, match="pixels"):
        decode_compressed("jpeg", data)
