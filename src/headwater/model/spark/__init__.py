"""Rows and schemas where Spark meets Arrow. Importing it imports no Spark."""
