"""Public places that a noisy point may be moved to: their index, snapping, and the optimal remap; all of it post-processing."""
