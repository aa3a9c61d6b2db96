"""The filter server: runs consumers' filters beside the broker, in a jail."""
