import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vla_runtime.policy.bundle_model import CameraModel
from vla_runtime.policy.errors import ObservationError
from vla_runtime.policy.preprocess import images_tensor, prepare, resize, resize_with_mode


def bilinear(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Pixel by pixel, straight from the definition (half-pixel centres, clamped borders)."""
    source_h, source_w = image.shape[:2]
    out = np.zeros((height, width, image.shape[2]))
    for row in range(height):
        y = max((row + 0.5) * source_h / height - 0.5, 0)
        top = min(int(y), source_h - 1)
        below = min(top + 1, source_h - 1)
        for column in range(width):
            x = max((column + 0.5) * source_w / width - 0.5, 0)
            left = min(int(x), source_w - 1)
            right = min(left + 1, source_w - 1)
            upper = image[top, left] * (1 - (x - left)) + image[top, right] * (x - left)
            lower = image[below, left] * (1 - (x - left)) + image[below, right] * (x - left)
            out[row, column] = upper * (1 - (y - top)) + lower * (y - top)
    return out


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


side = st.integers(1, 14)


@settings(deadline=None, max_examples=60)
@given(side, side, side, side, st.integers(0, 1000))
def test_resize_is_bilinear_with_half_pixel_centres(h, w, new_h, new_w, seed):
    image = picture(h, w, seed)
    got = resize(image, new_h, new_w, False)
    assert got.shape == (new_h, new_w, 3) and got.dtype == np.float32
    assert np.abs(got - bilinear(image, new_h, new_w)).max() < 1e-3


def test_same_size_changes_nothing():
    image = picture(9, 7)
    assert np.array_equal(resize(image, 9, 7, True), image)


@pytest.mark.parametrize("size", [(48, 64), (33, 50), (96, 96)])
def test_antialias_agrees_with_pillow_within_one_level(size):
    image = np.asarray(Image.fromarray(picture(12, 16)).resize((640, 480), Image.BICUBIC))
    want = np.asarray(Image.fromarray(image).resize(size[::-1], Image.BILINEAR)).astype(float)
    assert np.abs(resize(image, *size, True) - want).max() <= 1.0


@settings(deadline=None, max_examples=40)
@given(
    st.integers(4, 40),
    st.integers(4, 40),
    st.sampled_from(["stretch", "pad", "crop"]),
    st.booleans(),
    st.integers(0, 255),
)
def test_a_flat_picture_stays_flat_in_every_mode(h, w, mode, antialias, level):
    camera = CameraModel(name="c", width=12, height=10, resize=mode, antialias=antialias, pad_value=level / 255)
    out = resize_with_mode(np.full((h, w, 3), level, np.uint8), camera)
    assert out.shape == (10, 12, 3)
    assert np.abs(out - level).max() < 1e-3


def test_pad_keeps_the_shape_of_things_and_says_where_the_padding_is():
    image = np.full((10, 20, 3), 200, np.uint8)
    both = resize_with_mode(image, CameraModel(name="c", width=20, height=20, resize="pad"))
    assert [int(both[row].max()) for row in (4, 5, 14, 15)] == [0, 200, 200, 0]
    top = resize_with_mode(image, CameraModel(name="c", width=20, height=20, resize="pad", pad_side="top_left"))
    assert [int(top[row].max()) for row in (9, 10, 19)] == [0, 200, 200]


def test_crop_keeps_the_centre():
    image = np.zeros((10, 30, 3), np.uint8)
    image[:, 10:20] = 255
    assert resize_with_mode(image, CameraModel(name="c", width=10, height=10, resize="crop")).min() == 255


def test_normalisation_layout_and_order_of_cameras():
    cameras = [
        CameraModel(name="b", width=4, height=2, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0)),
        CameraModel(name="a", width=4, height=2),
    ]
    image = np.zeros((2, 4, 3), np.uint8)
    image[..., 0] = 255
    tensor = images_tensor({"a": np.zeros((2, 4, 3), np.uint8), "b": image}, cameras)
    assert tensor.shape == (2, 3, 2, 4) and tensor.dtype == np.float32
    assert tensor[0, :, 0, 0] == pytest.approx([1.0, -1.0, 0.0], abs=1e-6)
    assert not tensor[1].any()


def test_missing_camera_and_wrong_pictures_are_named():
    camera = CameraModel(name="front", width=4, height=2)
    with pytest.raises(ObservationError, match="front"):
        images_tensor({"wrist": picture(2, 4)}, [camera])
    for bad in (picture(2, 4).astype(np.float32), picture(2, 4)[..., 0], picture(2, 4)[..., :2]):
        with pytest.raises(ObservationError, match="front"):
            prepare(bad, camera)


class DeviceArray:
    """An array that, as CuPy's, refuses to become a NumPy array by itself."""

    def __init__(self, value):
        self.value = value
        self.shape, self.dtype, self.ndim = value.shape, value.dtype, value.ndim

    __array_ufunc__ = None

    def __array__(self, *_):
        raise TypeError("implicit copy from the device")

    def __mul__(self, other):
        return DeviceArray(self.value * other.value)

    def __add__(self, other):
        return DeviceArray(self.value + other.value)

    def __sub__(self, other):
        return DeviceArray(self.value - other.value)

    def __getitem__(self, key):
        return DeviceArray(self.value[key])

    def __setitem__(self, key, other):
        self.value[key] = other.value

    def astype(self, dtype):
        return DeviceArray(self.value.astype(dtype))

    def reshape(self, shape):
        return DeviceArray(self.value.reshape(shape))


class DeviceModule:
    """The few functions of an array module that preprocessing may use."""

    float32 = np.float32

    def asarray(self, value, dtype=None):
        return value if isinstance(value, DeviceArray) else DeviceArray(np.asarray(value, dtype))

    def take(self, array, indices, axis):
        return DeviceArray(np.take(array.value, indices.value, axis))

    def full(self, shape, value, dtype):
        return DeviceArray(np.full(shape, value, dtype))

    def transpose(self, array, axes):
        return DeviceArray(np.transpose(array.value, axes))

    def stack(self, arrays):
        return DeviceArray(np.stack([array.value for array in arrays]))


@pytest.mark.parametrize("mode", ["stretch", "pad", "crop"])
@pytest.mark.parametrize("antialias", [False, True])
def test_the_same_code_runs_on_arrays_that_never_leave_their_device(mode, antialias):
    cameras = [CameraModel(name="c", width=13, height=9, resize=mode, antialias=antialias, mean=(0.1, 0.2, 0.3))]
    image = picture(24, 31)
    on_device = images_tensor({"c": DeviceArray(image)}, cameras, DeviceModule())
    assert np.array_equal(on_device.value, images_tensor({"c": image}, cameras))
