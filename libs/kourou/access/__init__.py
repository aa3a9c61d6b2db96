"""Access control: users, roles, policies, and the decision about each request.

Pure: no I/O, no clock, no secret. Credentials are proved elsewhere; here a request already has a
principal. An administrator may do everything. For everybody else a denying policy wins over an
allowing one, and what no policy allows is refused.
"""
