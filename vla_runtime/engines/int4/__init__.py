"""A token's product with INT4 weights, of our own, for ONNX Runtime on x86 processors with AVX-512 VNNI."""
