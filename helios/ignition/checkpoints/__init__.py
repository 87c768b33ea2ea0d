"""Checkpoint readers; a checkpoint is hostile until checked."""
