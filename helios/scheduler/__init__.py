"""Request lifecycle, admission, cohort and program choice: pure bookkeeping, clock injected, no device."""
