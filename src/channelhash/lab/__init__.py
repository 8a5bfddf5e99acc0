"""The laboratory: the demo, distillation, experiments and reports. Nothing below imports it."""
