"""The only package that knows Flink: tables, sources, sinks, and thin functions that hand batches to `streaming`."""
