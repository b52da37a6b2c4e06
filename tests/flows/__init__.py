"""Pipelines from end to end, by their source: what lands is compared with what the source holds."""
