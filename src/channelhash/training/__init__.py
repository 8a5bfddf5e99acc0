"""Training: one step, the loop around it, and where its inputs come from."""
