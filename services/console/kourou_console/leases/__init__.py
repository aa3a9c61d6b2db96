"""Messages that HTTP clients hold for a time: members of a group that keep no connection."""
