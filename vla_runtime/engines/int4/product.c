#include "product.h"

#include <string.h>

/* A packed weight is a sequence of strips of 16 outputs. A strip is a sequence of blocks; a block is the 16 scales in
 * float32, then 64 bytes for every 8 inputs: byte 4 * n + i holds input i of output n in its low half and input i + 4
 * in its high half, each plus 8. So a thread reads memory in order, and one load feeds two dot products of 4 inputs.
 */
int vla_int4_fits(Shape shape) {
  return shape.block > 0 && shape.block % 16 == 0 && shape.inputs > 0 && shape.inputs % shape.block == 0 &&
         shape.inputs <= LARGEST && shape.outputs > 0 && shape.outputs % STRIP == 0;
}

static size_t block_size(Shape shape) { return STRIP * sizeof(float) + shape.block * STRIP / 2; }

static size_t strip_size(Shape shape) { return shape.inputs / shape.block * block_size(shape); }

size_t vla_int4_size(Shape shape) { return shape.outputs / STRIP * strip_size(shape); }

int64_t vla_int4_tiles(Shape shape) { return (shape.outputs / STRIP + TILE - 1) / TILE; }

/* The weights of one input and a strip, 4 bits each: two's complement, plus 8. */
static uint64_t values(Shape shape, const uint8_t *q, int64_t input, int64_t first) {
  uint64_t found;
  memcpy(&found, q + (input * shape.outputs + first) / 2, sizeof found);
  return found ^ 0x8888888888888888;
}

/* Blocks are the outer loop: so a page of ``q`` is read to its end before it is left. */
void vla_int4_pack(Shape shape, const uint8_t *q, const float *scales, uint8_t *packed) {
  for (int64_t block = 0; block < shape.inputs / shape.block; block++)
    for (int64_t first = 0; first < shape.outputs; first += STRIP) {
      uint8_t *to = packed + first / STRIP * strip_size(shape) + block * block_size(shape);
      memcpy(to, scales + block * shape.outputs + first, STRIP * sizeof(float));
      to += STRIP * sizeof(float);
      for (int64_t k = block * shape.block; k < (block + 1) * shape.block; k += STEP) {
        uint64_t row[STEP];
        for (int i = 0; i < STEP; i++) row[i] = values(shape, q, k + i, first);
        for (int n = 0; n < STRIP; n++)
          for (int i = 0; i < STEP / 2; i++)
            *to++ = (uint8_t)((row[i] >> 4 * n & 15) | (row[i + STEP / 2] >> 4 * n & 15) << 4);
      }
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define WITH_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) WITH_VNNI

/* How far ahead memory is asked for: the processor's own prefetching ends at every page of 4 KiB. */
enum { AHEAD = 2048 };

/* Smaller inputs count as zero: 127 over one of them may not be a finite number. */
static const float LEAST = 1e-30f;

int vla_int4_supported(void) {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni");
}

WITH_VNNI void vla_int4_round(Shape shape, const float *x, Rounded rounded) {
  const __m512i lowest = _mm512_set1_epi32(-127); /* what is not a number becomes the least integer there is */
  for (int64_t block = 0; block < shape.inputs / shape.block; block++, x += shape.block) {
    __m512 most = _mm512_setzero_ps(), flaw = _mm512_setzero_ps();
    for (int64_t k = 0; k < shape.block; k += 16) {
      __m512 v = _mm512_loadu_ps(x + k);
      most = _mm512_max_ps(most, _mm512_abs_ps(v));
      flaw = _mm512_fmadd_ps(v, _mm512_setzero_ps(), flaw); /* 0, or NaN where v is not finite */
    }
    float largest = _mm512_reduce_max_ps(most);
    __m512 inverse = _mm512_set1_ps(largest < LEAST ? 0 : 127 / largest);
    __m512i sum = _mm512_setzero_si512();
    for (int64_t k = 0; k < shape.block; k += 16) {
      __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + k), inverse));
      v = _mm512_max_epi32(v, lowest);
      _mm_storeu_si128((__m128i *)(rounded.value + block * shape.block + k), _mm512_cvtsepi32_epi8(v));
      sum = _mm512_add_epi32(sum, v);
    }
    rounded.scale[block] = largest / 127 + _mm512_reduce_add_ps(flaw);
    rounded.offset[block] = -8 * _mm512_reduce_add_epi32(sum);
  }
}

/* ``block`` and ``strips`` are given apart from ``shape``, so that the compiler knows them where they are constants. */
INLINE void strips_of(Shape shape, int64_t block, int strips, const uint8_t *packed, Rounded x, float *y) {
  const __m512i low = _mm512_set1_epi8(15);
  size_t strip = strip_size(shape);
  __m512 sum[TILE];
  for (int s = 0; s < strips; s++) sum[s] = _mm512_setzero_ps();
  for (int64_t b = 0; b < shape.inputs / block; b++) {
    const int8_t *in = x.value + b * block;
    __m512i even[TILE], odd[TILE];
    for (int s = 0; s < strips; s++) {
      even[s] = _mm512_set1_epi32(x.offset[b]);
      odd[s] = _mm512_setzero_si512();
    }
    const uint8_t *at = packed + b * block_size(shape);
    for (int64_t k = 0; k < block; k += STEP) {
      int32_t first, second;
      memcpy(&first, in + k, 4);
      memcpy(&second, in + k + 4, 4);
      __m512i x0 = _mm512_set1_epi32(first), x1 = _mm512_set1_epi32(second);
      for (int s = 0; s < strips; s++) {
        const uint8_t *here = at + s * strip + STRIP * sizeof(float) + k * (STRIP / 2);
        _mm_prefetch((const char *)here + AHEAD, _MM_HINT_T0);
        __m512i w = _mm512_loadu_si512(here);
        even[s] = _mm512_dpbusd_epi32(even[s], _mm512_and_si512(w, low), x0);
        odd[s] = _mm512_dpbusd_epi32(odd[s], _mm512_and_si512(_mm512_srli_epi16(w, 4), low), x1);
      }
    }
    for (int s = 0; s < strips; s++) {
      const uint8_t *scales = at + s * strip;
      _mm_prefetch((const char *)scales + AHEAD, _MM_HINT_T0);
      __m512 scale = _mm512_mul_ps(_mm512_loadu_ps((const float *)scales), _mm512_set1_ps(x.scale[b]));
      sum[s] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even[s], odd[s])), scale, sum[s]);
    }
  }
  for (int s = 0; s < strips; s++) _mm512_storeu_ps(y + s * STRIP, sum[s]);
}

WITH_VNNI void vla_int4_tile(Shape shape, const uint8_t *packed, Rounded x, float *y, int64_t tile) {
  int64_t first = tile * TILE, left = shape.outputs / STRIP - first;
  packed += first * strip_size(shape);
  y += first * STRIP;
  if (left >= TILE && shape.block == 128)
    strips_of(shape, 128, TILE, packed, x, y);
  else if (left >= TILE)
    strips_of(shape, shape.block, TILE, packed, x, y);
  else
    for (int64_t s = 0; s < left; s++) strips_of(shape, shape.block, 1, packed + s * strip_size(shape), x, y + s * STRIP);
}

#else /* another processor: ONNX Runtime's own kernel runs */

int vla_int4_supported(void) { return 0; }
void vla_int4_round(Shape shape, const float *x, Rounded rounded) { (void)shape, (void)x, (void)rounded; }
void vla_int4_tile(Shape shape, const uint8_t *packed, Rounded x, float *y, int64_t tile) {
  (void)shape, (void)packed, (void)x, (void)y, (void)tile;
}

#endif
