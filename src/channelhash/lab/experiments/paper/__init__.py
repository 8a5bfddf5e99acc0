"""The numbers that the paper prints, beside ours."""
