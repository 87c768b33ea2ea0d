"""Core containers on disk: envelope, signatures, frames, chunk readers, authorize."""
