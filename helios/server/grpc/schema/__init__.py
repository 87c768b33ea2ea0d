"""The .proto sources of the gRPC services and the code generated from them by `scripts/generate`."""
