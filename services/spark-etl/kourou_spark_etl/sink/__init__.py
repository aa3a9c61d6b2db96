"""Writing: `df.write.format("kourou")` and `df.writeStream.format("kourou")`."""
