"""What every service is made of: the contract of a core, shared inputs and effects, settings."""
