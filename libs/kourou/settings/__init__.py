"""Settings of clients and services: their declaration, the sources of values, changes at run time.

A setting is declared once, as a field of a settings class. Its keys in files, environment and on
the command line, its checks, the pages about it and its changes at run time are derived from that.
"""
