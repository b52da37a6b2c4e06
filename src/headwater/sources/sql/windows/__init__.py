"""Windows of one stream: three strategies for rows that commit late, behind one protocol. No database is named here."""
