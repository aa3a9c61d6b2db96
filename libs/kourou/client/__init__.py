"""What applications import: the Client facade over producer, consumers and administration."""
