"""The .proto sources and the code generated from them by `scripts/generate`."""
