"""Commands to slices, events from them."""
