"""scripts/gpu_check: kernels and a whole model on a GPU, checked and timed. See docs/cuda.md."""
