"""Vocabulary facts and incremental decoding on top of the `tokenizers` library."""
