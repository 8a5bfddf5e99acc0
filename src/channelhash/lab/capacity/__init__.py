"""What a collection of any size needs, computed from rates that were measured on one machine."""
