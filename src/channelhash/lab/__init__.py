"""The laboratory: experiments, reports, benchmarks and capacity planning. Nothing below imports it."""
