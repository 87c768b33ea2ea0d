"""scripts/evaluate: the stock lm-eval harness against a served model."""
