"""The commands of `kourou`: thin, one file a family, everything heavy imported when it is used.

Lives here: arguments, words for people, exit codes. May not live here: anything a library user
could miss; what a command does belongs to the layers below.
"""
