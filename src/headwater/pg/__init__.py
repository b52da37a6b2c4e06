"""PostgreSQL for sources, stores of settings and services: connections, errors, types, COPY, the catalog, names."""
