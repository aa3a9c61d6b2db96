"""`kourou admin`: what operators do, under the names of RocketMQ's mqadmin and with its letters."""
