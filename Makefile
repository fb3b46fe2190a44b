# Everything a fresh machine needs: `make demo` and `make test` do all set-up themselves.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check -q

# Off-screen rendering for the simulator's cameras (Mesa's software renderer is enough).
GL_PACKAGES := libegl1 libgl1-mesa-dri libgl1

# BLAS and OpenMP threads that fight over two cores make some tests ten times slower.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive

.PHONY: help setup demo test lint system-libraries setup-export setup-tensorrt setup-peers setup-peers-pi setup-llamacpp test-peers test-peers-pi train-demo clean

help:
	@echo "make demo [FAULT=slow|hang|kill|nan|stale_camera|dead_executor]   simulated robot, real nodes, a report"
	@echo "make test                                                        linter and all tests"
	@echo "make setup                                                       $(VENV) with everything pinned"
	@echo "make train-demo                                                  train the demo policy again (hours)"
	@echo "make test-peers                                                  compare with LeRobot (own environment)"
	@echo "make test-peers-pi                                               the same for pi0 and pi0.5 (needs Python 3.12)"

setup: $(VENV)/.ready system-libraries

$(VENV)/.ready: setup.py requirements/lock.txt $(wildcard vla_runtime/engines/int4/*.[ch])
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("the pinned packages need Python 3.11 or newer, and $(PYTHON) is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing the pinned packages into $(VENV), once: this takes minutes and says nothing until it is done."
	$(PIP) install -c requirements/lock.txt -e '.[ros,sim,dev]'
	touch $@

# Optional packages for the tests of one module each (Pinocchio is 380 MB): who only wants to see the demo does without.
$(VENV)/.optional: $(VENV)/.ready
	$(PIP) install -c requirements/lock.txt -e '.[kinematics,openvino]'
	touch $@

system-libraries:
	@if ldconfig -p | grep -q 'libEGL.so.1' && ls /usr/lib/*/dri/swrast_dri.so >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(GL_PACKAGES) >/dev/null; \
	else \
	  echo "The simulator's cameras need off-screen OpenGL. Install it with: sudo apt-get install $(GL_PACKAGES)"; \
	fi

demo: setup
	$(BIN)/vla demo $(if $(FAULT),--fault $(FAULT)) $(DEMO_ARGS)

test: setup lint $(VENV)/.optional .venv-trt/.ready
	$(ONE_THREAD) $(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# PyTorch is for training, export and calibration only: an environment of its own keeps it off the robot.
setup-export: .venv-export/.ready
.venv-export/.ready: setup.py requirements/export.txt
	$(PYTHON) -m venv .venv-export
	.venv-export/bin/pip install -q -r requirements/export.txt
	.venv-export/bin/pip install -q --no-deps -e .
	touch $@

train-demo: setup-export system-libraries
	.venv-export/bin/vla train-demo --out bundles/demo-fp32 --seed 0

# TensorRT-RTX parses and builds without a GPU: every ONNX file that we emit goes through it in `make test`.
setup-tensorrt: .venv-trt/.ready
.venv-trt/.ready: requirements/tensorrt-rtx.txt
	$(PYTHON) -m venv .venv-trt
	.venv-trt/bin/pip --disable-pip-version-check -q install -r requirements/tensorrt-rtx.txt
	touch $@

# The peers' own environment (LeRobot): independent oracles, never a dependency.
setup-peers: .venv-peers/.ready
.venv-peers/.ready: requirements/peers.txt
	$(PYTHON) -m venv .venv-peers
	sh requirements/install-peers.sh .venv-peers peers.txt lerobot==0.4.4 torchvision==0.28.0 timm==1.0.22
	touch $@

# A later LeRobot for pi0 and pi0.5, which wants a later transformers and Python 3.12.
PYTHON312 ?= python3.12
setup-peers-pi: .venv-peers-pi/.ready
.venv-peers-pi/.ready: requirements/peers-pi.txt
	$(PYTHON312) -m venv .venv-peers-pi
	sh requirements/install-peers.sh .venv-peers-pi peers-pi.txt lerobot==0.6.1 torchvision==0.28.0
	touch $@

# ggml (llama.cpp's tensor library), for `vla bench policy --against llama.cpp`.
setup-llamacpp: .venv-llamacpp/.ready
.venv-llamacpp/.ready: requirements/install-llamacpp.sh
	PYTHON=$(PYTHON) sh requirements/install-llamacpp.sh .venv-llamacpp
	touch $@

test-peers: setup-peers
	HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=passive .venv-peers/bin/python -m pytest test/peers $(PYTEST_ARGS)

test-peers-pi: setup-peers-pi
	HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=passive .venv-peers-pi/bin/python -m pytest test/peers/test_export_pi.py $(PYTEST_ARGS)

clean:
	rm -rf build install log out .pytest_cache .hypothesis .ruff_cache
