"""Small changes to configuration files of somebody else: what we don't change stays as it is, byte for byte."""
