"""The client library: the Client facade for producers, consumers and administration."""
