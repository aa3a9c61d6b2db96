"""What is computed of messages: one pure function of DataFrames a file."""
