"""Value sources to bytes in a staging frame: resolved once, pure."""
