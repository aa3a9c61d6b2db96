"""The data types of a message broker, as plain values without behaviour that needs mocks."""
