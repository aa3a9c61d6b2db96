"""Configuration files and other small files."""
