"""Records: texts read as trees of records, those worth reading chosen within a budget, and what stands in the gaps."""
