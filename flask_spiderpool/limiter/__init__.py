"""How fast the pool may ask one host."""
