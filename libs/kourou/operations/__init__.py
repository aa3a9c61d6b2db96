"""The operator verbs of Kourou as data: one catalogue for the command line and the HTTP API."""
