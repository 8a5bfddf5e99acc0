"""Runs: training into a folder, evaluation, extension, distillation."""
