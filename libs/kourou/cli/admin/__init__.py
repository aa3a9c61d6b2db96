"""`kourou admin`: commands for operators, with the names and option letters of mqadmin."""
