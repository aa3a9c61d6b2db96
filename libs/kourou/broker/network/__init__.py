"""A broker's connections, its registration with name servers, and reads of another broker's log."""
