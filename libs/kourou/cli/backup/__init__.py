"""`kourou backup` and `kourou restore`: a copy of a live broker, and a store made of it."""
