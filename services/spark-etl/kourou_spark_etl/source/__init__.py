"""Reading: a topic, or a store directory, as a table of Spark."""
