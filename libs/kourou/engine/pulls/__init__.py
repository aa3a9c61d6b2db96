"""Pulls, long polls, queries and offsets."""
