"""PostgreSQL for sources and services: connections, errors, types, COPY, the catalog, names."""
