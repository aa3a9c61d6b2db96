"""The common part of every service: the contract of a core, shared inputs and effects."""
