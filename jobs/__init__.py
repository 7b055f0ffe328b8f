"""The outermost layer: which graph runs, and the programs that people start."""
