"""Why is a message where it is: facts that brokers and members tell, and what follows from them."""
