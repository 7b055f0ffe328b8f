"""Historical logs -> Kafka or Parquet: readers of many formats, one merge by event time, and the same job as live."""
