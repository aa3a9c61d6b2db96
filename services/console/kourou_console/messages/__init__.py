"""Messages as the API reads, shows, follows and sends them."""
