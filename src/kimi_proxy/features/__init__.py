"""Pure computation: values in, values out."""
