"""Hash functions in closed form, which any training has to beat."""
