"""Verification: compares tables with their source at one position, and repairs what differs."""
