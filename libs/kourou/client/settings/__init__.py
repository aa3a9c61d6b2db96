"""The settings of clients, their declaration and their sources."""
