"""The laboratory: the demo, downloads, distillation, experiments and reports. Nothing below imports
it.
"""
