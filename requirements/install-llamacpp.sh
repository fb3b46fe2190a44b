#!/bin/sh
# Build ggml, the tensor library of llama.cpp, from the source archive of llama-cpp-python into $1/lib.
# For `vla bench policy --against llama.cpp` only. Needs a C++ compiler, cmake and pip; takes some minutes.
set -eu
version=0.3.36
mkdir -p "$1/lib"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m pip --disable-pip-version-check -q download --no-deps --no-binary llama-cpp-python \
  -d "$work" "llama-cpp-python==$version"
tar xzf "$work/llama_cpp_python-$version.tar.gz" -C "$work"
# All of llama.cpp's options that only cost time are off; ggml itself is as its makers build it for this processor.
cmake -S "$work/llama_cpp_python-$version/vendor/llama.cpp" -B "$work/build" -DCMAKE_BUILD_TYPE=Release \
  -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
  -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_CURL=OFF >"$work/log"
cmake --build "$work/build" --target ggml -j 2 >>"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
cp -P "$work"/build/bin/libggml*.so* "$1/lib/"
