"""The source: reads a topic, or a store directory, as a Spark table."""
