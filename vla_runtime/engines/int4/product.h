/* One row times INT4 weights: y (N) = x (K) @ W (K, N), W = q * scale with q in [-8, 7] in blocks along K.
 *
 * Activations are rounded to 8 bits, one scale for each block of inputs, as ONNX Runtime's own kernel does.
 */
#ifndef VLA_INT4_PRODUCT_H
#define VLA_INT4_PRODUCT_H

#include <stddef.h>
#include <stdint.h>

enum {
  STRIP = 16,    /* outputs that are computed together: one vector of float32 */
  TILE = 4,      /* strips that a thread reads side by side */
  STEP = 8,      /* inputs in 64 bytes of a strip */
  LARGEST = 65536, /* inputs at most: their rounded values lie on the stack */
};

typedef struct {
  int64_t inputs, outputs, block; /* K, a multiple of block; N, a multiple of STRIP; block, a multiple of 16 */
} Shape;

/* x in 8 bits: x[k] ~ scale[k / block] * value[k]; offset: what the weights' own offset of 8 adds to a block's sum. */
typedef struct {
  int8_t *value;
  float *scale;
  int32_t *offset;
} Rounded;

/* Whether a weight of this shape can be packed. */
int vla_int4_fits(Shape shape);

/* Whether this processor has the instructions. */
int vla_int4_supported(void);

/* Bytes of a packed weight: half a byte for each value and four for each scale. */
size_t vla_int4_size(Shape shape);

/* Pack ONNX's form: ``q`` (K, N) two in a byte, the first in the low half; ``scales`` (K / block, N). */
void vla_int4_pack(Shape shape, const uint8_t *q, const float *scales, uint8_t *packed);

/* Round ``x`` (K). A value that is not finite makes its block's scale NaN, so that every output shows it. */
void vla_int4_round(Shape shape, const float *x, Rounded rounded);

/* Compute the outputs of tile number ``tile``; there are vla_int4_tiles of them, and they do not depend on each other. */
int64_t vla_int4_tiles(Shape shape);
void vla_int4_tile(Shape shape, const uint8_t *packed, Rounded x, float *y, int64_t tile);

#endif
