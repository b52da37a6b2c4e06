"""Whether a PostgreSQL server is ready for change capture, and the SQL that makes it so (D6).

`asking` reads what there is, once, into `facts`; `findings` and `preparing` are pure functions over that.
"""
