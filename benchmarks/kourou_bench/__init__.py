"""`kourou bench`: measures this machine from outside and verifies the message counts."""
