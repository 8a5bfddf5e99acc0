"""The laboratory: experiments, reports and benchmarks. Nothing below imports it."""
