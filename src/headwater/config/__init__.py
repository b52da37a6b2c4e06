"""YAML files → checked, frozen settings. One file per component that can be set."""
