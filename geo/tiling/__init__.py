"""Public tilings: disjoint tiles over the road cells of a region, their tree, and which tile holds which point."""
