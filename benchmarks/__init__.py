"""What is measured, as ratios within one run; `python -m benchmarks.<name> --help`. Results: LOG.md and results/."""
