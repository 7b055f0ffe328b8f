"""Measures the jobs against a bare loop and a Flink identity job on the same broker: `make bench`."""
