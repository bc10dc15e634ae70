from __future__ import annotations

import pytest

from enginehouse.engines.failures import reports_too_little_memory


@pytest.mark.parametrize(
    "line",
    [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 355 MiB on device 0: cudaMalloc failed: out of memory",
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 437944320",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "ValueError: Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "OSError: [Errno 12] Cannot allocate memory",
    ],
)
def test_what_engines_say_when_there_is_too_little_memory(line: str) -> None:
    assert reports_too_little_memory(1, ["loading", line, "exiting due to model loading error"])


@pytest.mark.parametrize("status", [-9, 137])
def test_an_engine_that_was_killed_may_have_been_so_for_its_memory(status: int) -> None:
    assert reports_too_little_memory(status, [])


@pytest.mark.parametrize("status", [0, 1, -11, -15, None])
@pytest.mark.parametrize(
    "line",
    [
        "error: unknown argument: --mem-fraction",
        "llama_kv_cache: CUDA0 KV buffer size = 512.00 MiB",
        "llama_model_load: error loading model: failed to open GGUF file 'tiny.gguf'",
        "INFO: free memory on device 0: 19 GiB",
    ],
)
def test_other_failures_are_none_of_memory(status: int | None, line: str) -> None:
    assert not reports_too_little_memory(status, [line])
