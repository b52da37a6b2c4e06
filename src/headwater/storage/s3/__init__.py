"""S3 and servers that speak its protocol: credentials, signed requests, listing, reading."""
