"""The nouns of a message broker, as plain values: standard library only, no behaviour to mock."""
