/* ONNX Runtime's operator vla_runtime.Int4Product: x (..., K) float32 and a packed weight (bytes) give (..., N). */
#include <stdlib.h>

#include "onnxruntime.h"
#include "product.h"

enum { MOST_AXES = 64 }; /* as NumPy */

typedef struct {
  const OrtApi *api;
  Shape shape;
} Kernel;

typedef struct {
  Shape shape;
  const uint8_t *packed;
  Rounded x;
  float *y;
} Row;

#define TRY(call)                  \
  do {                             \
    OrtStatus *failed = (call);    \
    if (failed != NULL) return failed; \
  } while (0)

static OrtStatus *create(const OrtOp *op, const OrtApi *api, const OrtKernelInfo *info, void **made) {
  (void)op;
  Shape shape;
  TRY(api->KernelInfoGetAttribute_int64(info, "K", &shape.inputs));
  TRY(api->KernelInfoGetAttribute_int64(info, "N", &shape.outputs));
  TRY(api->KernelInfoGetAttribute_int64(info, "block_size", &shape.block));
  if (!vla_int4_fits(shape)) return api->CreateStatus(ORT_INVALID_ARGUMENT, "Int4Product: sizes that it cannot compute");
  if (!vla_int4_supported()) return api->CreateStatus(ORT_INVALID_ARGUMENT, "Int4Product: no AVX-512 VNNI here");
  Kernel *kernel = malloc(sizeof *kernel);
  if (kernel == NULL) return api->CreateStatus(ORT_INVALID_ARGUMENT, "Int4Product: out of memory");
  *kernel = (Kernel){api, shape};
  *made = kernel;
  return NULL;
}

static void destroy(void *kernel) { free(kernel); }

/* Give a tensor's data, the lengths of its axes and the number of its elements. */
static OrtStatus *tensor(const OrtApi *api, OrtContext *context, size_t index, const void **data, int64_t *lengths,
                         size_t *axes, size_t *elements) {
  const OrtValue *value;
  OrtShape *shape;
  TRY(api->KernelContext_GetInput(context, index, &value));
  TRY(api->GetTensorMutableData((OrtValue *)value, (void **)data));
  TRY(api->GetTensorTypeAndShape(value, &shape));
  OrtStatus *failed = api->GetDimensionsCount(shape, axes);
  if (failed == NULL && *axes > MOST_AXES) failed = api->CreateStatus(ORT_INVALID_ARGUMENT, "Int4Product: too many axes");
  if (failed == NULL) failed = api->GetDimensions(shape, lengths, *axes);
  if (failed == NULL) failed = api->GetTensorShapeElementCount(shape, elements);
  api->ReleaseTensorTypeAndShapeInfo(shape);
  return failed;
}

static void tile(void *data, size_t index) {
  const Row *row = data;
  vla_int4_tile(row->shape, row->packed, row->x, row->y, (int64_t)index);
}

static OrtStatus *compute(void *state, OrtContext *context) {
  const Kernel *kernel = state;
  const OrtApi *api = kernel->api;
  Shape shape = kernel->shape;
  int64_t lengths[MOST_AXES], packed_lengths[MOST_AXES];
  size_t axes, packed_axes, elements, bytes;
  const float *x;
  const uint8_t *packed;
  TRY(tensor(api, context, 0, (const void **)&x, lengths, &axes, &elements));
  TRY(tensor(api, context, 1, (const void **)&packed, packed_lengths, &packed_axes, &bytes));
  if (axes == 0 || lengths[axes - 1] != shape.inputs)
    return api->CreateStatus(ORT_INVALID_ARGUMENT, "Int4Product: the input's last axis is not K long");
  if (bytes != vla_int4_size(shape))
    return api->CreateStatus(ORT_INVALID_ARGUMENT, "Int4Product: the packed weight is of another size");
  lengths[axes - 1] = shape.outputs;
  OrtValue *out;
  float *y;
  TRY(api->KernelContext_GetOutput(context, 0, lengths, axes, &out));
  TRY(api->GetTensorMutableData(out, (void **)&y));
  int8_t value[shape.inputs];
  float scale[shape.inputs / shape.block];
  int32_t offset[shape.inputs / shape.block];
  for (size_t row = 0; row < elements / shape.inputs; row++) {
    Row task = {shape, packed, {value, scale, offset}, y + row * shape.outputs};
    vla_int4_round(shape, x + row * shape.inputs, task.x);
    TRY(api->KernelContext_ParallelFor(context, tile, vla_int4_tiles(shape), 0, &task));
  }
  return NULL;
}

static const char *name(const OrtOp *op) { return (void)op, "Int4Product"; }
static const char *provider(const OrtOp *op) { return (void)op, "CPUExecutionProvider"; }
static int input_type(const OrtOp *op, size_t index) { return (void)op, index == 0 ? ORT_FLOAT : ORT_UINT8; }
static int output_type(const OrtOp *op, size_t index) { return (void)op, (void)index, ORT_FLOAT; }
static size_t inputs(const OrtOp *op) { return (void)op, 2; }
static size_t outputs(const OrtOp *op) { return (void)op, 1; }
static int required(const OrtOp *op, size_t index) { return (void)op, (void)index, ORT_REQUIRED; }
static int memory(const OrtOp *op, size_t index) { return (void)op, (void)index, ORT_DEFAULT; }
static int version(const OrtOp *op) { return (void)op, 1; }

static const OrtOp OPERATOR = {
    .version = ORT_VERSION,
    .GetName = name,
    .GetExecutionProviderType = provider,
    .GetInputType = input_type,
    .GetInputTypeCount = inputs,
    .GetOutputType = output_type,
    .GetOutputTypeCount = outputs,
    .KernelDestroy = destroy,
    .GetInputCharacteristic = required,
    .GetOutputCharacteristic = required,
    .GetInputMemoryType = memory,
    .CreateKernelV2 = create,
    .KernelComputeV2 = compute,
    .GetStartVersion = version,
    .GetEndVersion = version,
};

/* What ONNX Runtime calls when the library is registered with a session. */
OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  static OrtDomain *domain; /* one for the process: it has to outlive every session */
  const OrtApi *api = base->GetApi(ORT_VERSION);
  if (api == NULL) return NULL; /* older than this interface: it says that it does not know the operator */
  if (domain == NULL) {
    OrtDomain *made;
    TRY(api->CreateCustomOpDomain("vla_runtime", &made));
    TRY(api->CustomOpDomain_Add(made, &OPERATOR));
    domain = made;
  }
  return api->AddCustomOpDomain(options, domain);
}
