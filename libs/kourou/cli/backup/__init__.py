"""`kourou backup` and `kourou restore`: back up a running broker, create a store from a backup."""
