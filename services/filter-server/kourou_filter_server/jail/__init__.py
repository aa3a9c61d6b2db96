"""What runs inside the jail and what builds it: of the standard library, without all of Kourou."""
