"""Several workers behind a front, looked at from both sides; docs/scale-out.md has the commands."""
