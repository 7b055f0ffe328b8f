"""Compares the density product with other private histograms on public samples: `make bench-density`."""
