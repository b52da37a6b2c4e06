"""PostgreSQL for sources, progress stores and services: connections, errors, types, COPY, the catalog, names."""
