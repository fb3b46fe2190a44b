/* The part of ONNX Runtime's C interface that a custom operator needs, at version 17 of the interface.
 *
 * No package brings the header. The interface is a table of functions that only ever grows at its end, so a place in it
 * is a promise; every place that is used is asserted below. Reserved entries are functions that are not used here.
 */
#ifndef VLA_ONNXRUNTIME_H
#define VLA_ONNXRUNTIME_H

#include <stddef.h>
#include <stdint.h>

enum { ORT_VERSION = 17, ORT_INVALID_ARGUMENT = 2, ORT_FLOAT = 1, ORT_UINT8 = 2, ORT_REQUIRED = 0, ORT_DEFAULT = 0 };

typedef struct OrtStatus OrtStatus; /* NULL: success */
typedef struct OrtValue OrtValue;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtDomain OrtDomain;
typedef struct OrtShape OrtShape;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtContext OrtContext;
typedef struct OrtOp OrtOp;
typedef void (*Reserved)(void);

typedef struct {
  OrtStatus *(*CreateStatus)(int code, const char *message);
  Reserved from_1[25];
  OrtStatus *(*CreateCustomOpDomain)(const char *name, OrtDomain **made);
  OrtStatus *(*CustomOpDomain_Add)(OrtDomain *domain, const OrtOp *op);
  OrtStatus *(*AddCustomOpDomain)(OrtSessionOptions *options, OrtDomain *domain);
  Reserved from_29[22];
  OrtStatus *(*GetTensorMutableData)(OrtValue *value, void **data);
  Reserved from_52[9];
  OrtStatus *(*GetDimensionsCount)(const OrtShape *shape, size_t *count);
  OrtStatus *(*GetDimensions)(const OrtShape *shape, int64_t *lengths, size_t count);
  Reserved from_63[1];
  OrtStatus *(*GetTensorShapeElementCount)(const OrtShape *shape, size_t *count);
  OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *value, OrtShape **shape);
  Reserved from_66[20];
  OrtStatus *(*KernelInfoGetAttribute_int64)(const OrtKernelInfo *info, const char *name, int64_t *value);
  Reserved from_87[3];
  OrtStatus *(*KernelContext_GetInput)(const OrtContext *context, size_t index, const OrtValue **value);
  OrtStatus *(*KernelContext_GetOutput)(OrtContext *context, size_t index, const int64_t *lengths, size_t count,
                                        OrtValue **value);
  Reserved from_92[7];
  void (*ReleaseTensorTypeAndShapeInfo)(OrtShape *shape);
  Reserved from_100[174];
  OrtStatus *(*KernelContext_ParallelFor)(const OrtContext *context, void (*work)(void *data, size_t index),
                                          size_t total, size_t batches, void *data);
} OrtApi;

#define AT(name, place) _Static_assert(offsetof(OrtApi, name) == (place) * sizeof(Reserved), #name)
AT(CreateCustomOpDomain, 26);
AT(GetTensorMutableData, 51);
AT(GetDimensionsCount, 61);
AT(GetTensorShapeElementCount, 64);
AT(KernelInfoGetAttribute_int64, 86);
AT(KernelContext_GetInput, 90);
AT(ReleaseTensorTypeAndShapeInfo, 99);
AT(KernelContext_ParallelFor, 274);
#undef AT

typedef struct {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

struct OrtOp {
  uint32_t version;
  Reserved create_kernel; /* replaced by CreateKernelV2, which can fail */
  const char *(*GetName)(const OrtOp *op);
  const char *(*GetExecutionProviderType)(const OrtOp *op);
  int (*GetInputType)(const OrtOp *op, size_t index);
  size_t (*GetInputTypeCount)(const OrtOp *op);
  int (*GetOutputType)(const OrtOp *op, size_t index);
  size_t (*GetOutputTypeCount)(const OrtOp *op);
  Reserved kernel_compute; /* replaced by KernelComputeV2 */
  void (*KernelDestroy)(void *kernel);
  int (*GetInputCharacteristic)(const OrtOp *op, size_t index);
  int (*GetOutputCharacteristic)(const OrtOp *op, size_t index);
  int (*GetInputMemoryType)(const OrtOp *op, size_t index);
  Reserved variadic[4];
  OrtStatus *(*CreateKernelV2)(const OrtOp *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel);
  OrtStatus *(*KernelComputeV2)(void *kernel, OrtContext *context);
  Reserved infer_shape;
  int (*GetStartVersion)(const OrtOp *op);
  int (*GetEndVersion)(const OrtOp *op);
};

#endif
