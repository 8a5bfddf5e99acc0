"""The laboratory: experiments and reports. Nothing below imports it."""
