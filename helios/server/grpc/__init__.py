"""`vllm.Inference` and `vllm.Control` over gRPC, on a port of their own, by the same engine as HTTP."""
