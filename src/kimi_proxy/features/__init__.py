"""What computes: values in, values out."""
