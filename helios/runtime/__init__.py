"""ModelRuntime: load, frames, completions, the worker loop."""
